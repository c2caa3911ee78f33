// Rows of logits for the tests of the sampler, and one call of it on a copy of a row.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "sampler/sampler.h"

using Row = std::vector<float>;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline Row randomRow(int32_t vocab, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Row row(vocab);
  for (float& logit : row) logit = normal(random);
  return row;
}

inline pocket::Sampled sample(Row row, const pocket::Sampling& sampling, const std::vector<int32_t>& history = {},
                              int32_t generatedFrom = 0, const pocket::Mask& mask = {}) {
  pocket::Sampler sampler(static_cast<int32_t>(row.size()));
  return sampler.sample(row.data(), sampling, {history.data(), static_cast<int32_t>(history.size()), generatedFrom},
                        mask);
}

inline pocket::Sampling warm(float temperature) {
  pocket::Sampling sampling;
  sampling.temperature = temperature;
  return sampling;
}
