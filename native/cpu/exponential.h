// e^x by hand: it is called for every token of a vocabulary and every gate of a layer, compiles to vector code, and is
// the same on every machine, which library functions are not; provided that products and sums are not contracted
// (CMakeLists.txt sees to it for the files that include this). Static, so that no other file's copy, compiled with
// other flags, is linked in its place.
#pragma once

#include <cstdint>
#include <cstring>

namespace pocket {

// For |x| <= 87, within 2 units in the last place. x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts (Cody and
// Waite 1980), then the Taylor polynomial of degree 7. Without branches.
static inline float exponential(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  uint32_t exponent;
  std::memcpy(&exponent, &shifted, sizeof exponent);
  exponent = (exponent + 127) << 23;
  float scale;
  std::memcpy(&scale, &exponent, sizeof scale);
  return p * scale;
}

}  // namespace pocket
