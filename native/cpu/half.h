// f32 to 16-bit floats and back, by integers alone: the same bits on every machine, whatever instructions it has. Rounds
// to nearest, ties to even. For storing, and for weights looked up row by row; the kernels have conversions of their
// own, many at a time.
#pragma once

#include <cstdint>
#include <cstring>

namespace pocket {

inline uint32_t bitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float floatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Beyond 65,504 becomes infinity; not-a-number stays one.
inline uint16_t halfOf(float x) {
  const uint32_t bits = bitsOf(x);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  // Below the smallest normal half: let one addition do the rounding, at a fixed exponent.
  if (magnitude < 0x38800000u) return static_cast<uint16_t>(sign | (bitsOf(floatOf(magnitude) + 0.5f) - 0x3f000000u));
  const uint32_t odd = magnitude >> 13 & 1u;
  return static_cast<uint16_t>(sign | ((magnitude + 0xfffu + odd - 0x38000000u) >> 13));
}

inline float ofHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if (magnitude >= 0x0f800000u) return floatOf(sign | magnitude | 0x7f800000u);
  return floatOf(sign | bitsOf(floatOf(magnitude) * 0x1p112f));
}

inline uint16_t bf16Of(float x) {
  const uint32_t bits = bitsOf(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float ofBf16(uint16_t bf16) { return floatOf(static_cast<uint32_t>(bf16) << 16); }

}  // namespace pocket
