// The arithmetic of a softmax over a vocabulary and of a draw from it: exponentials, sums, a random number.
// Every function gives the same bits on every machine, provided that products and sums are not contracted
// (CMakeLists.txt sees to it for the sampler's sources; static, so that no other file's copy is linked in its place).
// Knows no tokens, no parameters, no order.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

namespace pocket {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows are walked in lanes: each is a chain of its own, so the compiler can keep them in one vector register, and
// the result does not depend on how wide that is.
inline constexpr int32_t kLanes = 16;

// e^x for x <= 0, within 2 units in the last place; 0 below -87, and for NaN. By hand, because it is called
// for every token of the vocabulary, compiles to vector code, and is the same on every machine, which
// library functions are not. x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor polynomial of degree 7.
static inline float expNegative(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  const bool tiny = !(x >= -87.0f);
  const float clamped = tiny ? -87.0f : x;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
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
  return tiny ? 0.0f : p * scale;
}

// [0, 1) out of (seed, draw): SplitMix64's finaliser (Steele et al., 2014) over both.
static inline double uniform(uint64_t seed, uint64_t draw) {
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  const uint64_t bits = mix(mix(seed + 0x9e3779b97f4a7c15u) + (draw + 1) * 0x9e3779b97f4a7c15u);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

static inline double sum(const float* values, int32_t count) {
  double lanes[kLanes] = {};
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int32_t j = 0; j < kLanes; j++) lanes[j] += values[i + j];
  }
  double total = 0;
  for (const double lane : lanes) total += lane;
  for (; i < count; i++) total += values[i];
  return total;
}

// weights[i] = e^((logits[i] - peak) / temperature), 0 for what is not finite. Returns their sum.
static inline double weigh(const float* logits, int32_t count, float peak, float temperature, float* weights) {
  for (int32_t i = 0; i < count; i++) {
    // NaN and +inf leave a difference that is NaN or over 0.
    const float x = (logits[i] - peak) / temperature;
    weights[i] = expNegative(x <= 0 ? x : -kInfinity);
  }
  return sum(weights, count);
}

}  // namespace pocket
