// Quantizes rows of x to eight bits. Plain loops, auto-vectorised with the flags of each kernel. In an unnamed
// namespace; linear/kernels/kernel.h gives the reason.
#pragma once

#include <cmath>
#include <cstring>

#include "linear/job.h"

namespace pocket {
namespace {

inline int32_t wordAt(const void* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

inline float floatAt(const void* from) {
  float number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

// Quantizes 32 numbers to the nearest multiples of largest / 127. Returns the scale: NaN if one is not finite, 0 if all
// are below 2^-100.
inline float quantizeGroup(const float* x, int8_t* codes) {
  uint32_t largestBits = 0;  // magnitudes order like their bits; NaN is above all
  for (int i = 0; i < kGroupColumns; i++) {
    const uint32_t bits = static_cast<uint32_t>(wordAt(x + i)) & 0x7fffffffu;
    largestBits = bits > largestBits ? bits : largestBits;
  }
  const float largest = floatAt(&largestBits);
  if (largestBits >= 0x7f800000u || largest < 0x1p-100f) {
    std::memset(codes, 0, kGroupColumns);
    return largestBits >= 0x7f800000u ? NAN : 0;
  }
  const float inverse = 127 / largest;
  for (int i = 0; i < kGroupColumns; i++) {
    const float shifted = x[i] * inverse + 0x1.8p23f;  // the low bits now hold the nearest integer
    codes[i] = static_cast<int8_t>(wordAt(&shifted));
  }
  return largest / 127;
}

// Eight at a time as unsigned bytes; gcc would add one by one.
inline int32_t sumOfSixteen(const int8_t* codes) {
  constexpr uint64_t kEven = 0x00ff00ff00ff00ffull, kFlip = 0x8080808080808080ull;
  uint64_t words[2], pairs = 0;
  std::memcpy(words, codes, sizeof words);
  for (uint64_t word : words) {
    word ^= kFlip;
    pairs += (word & kEven) + (word >> 8 & kEven);
  }
  return static_cast<int32_t>(pairs * 0x0001000100010001ull >> 48) - 16 * 128;
}

inline void quantizeRows(const float* x, int64_t stride, int rows, int columns, const RowTileBuffers& to) {
  for (int r = 0; r < rows; r++)
    for (int g = 0; g < columns / kGroupColumns; g++) {
      const int at = g * rows + r;
      int8_t* codes = to.codes + static_cast<int64_t>(at) * kGroupColumns;
      const float scale = quantizeGroup(x + r * stride + static_cast<int64_t>(g) * kGroupColumns, codes);
      const int32_t first = sumOfSixteen(codes), last = sumOfSixteen(codes + 16);
      to.scales[at] = scale;
      constexpr int kZeros[] = {8, 16, 128};
      for (int e = 0; e < 3; e++)
        if (to.extras[e] != nullptr) to.extras[e][at] = -kZeros[e] * (first + last);
      if (int32_t* halves = to.extras[static_cast<int>(Extra::kHalves32)]) {
        halves[2 * g * rows + r] = -32 * first;
        halves[(2 * g + 1) * rows + r] = -32 * last;
      }
      if (int32_t* sums = to.extras[static_cast<int>(Extra::kMinimum)]) {
        const float sum = scale * static_cast<float>(first + last);
        sums[at] = wordAt(&sum);
      }
    }
}

}  // namespace
}  // namespace pocket
