// The arithmetic of a softmax over a vocabulary and of a draw from it: exponentials, sums, a random number.
// Every function gives the same bits on every machine, provided that products and sums are not contracted
// (CMakeLists.txt sees to it for the sampler's sources; static, so that no other file's copy is linked in its place).
// Knows no tokens, no parameters, no order.
#pragma once

#include <cstdint>
#include <limits>

#include "cpu/exponential.h"

namespace pocket {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows are walked in lanes: each is a chain of its own, so the compiler can keep them in one vector register, and
// the result does not depend on how wide that is.
inline constexpr int32_t kLanes = 16;

// e^x for x <= 0; 0 below -87, and for NaN.
static inline float expNegative(float x) {
  const bool tiny = !(x >= -87.0f);
  const float power = exponential(tiny ? -87.0f : x);
  return tiny ? 0.0f : power;
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
