// From one row of logits to one token. Pure: the same logits, parameters, history and draw number give the
// same token on every machine, whatever else is in the batch, because the random number is a hash of
// (seed, draw) and not a stream. Follows the order of the common engines: penalties, temperature, top-k,
// top-p, min-p, draw.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pocket {

struct Sampling {
  float temperature = 0;  // 0: the largest logit (greedy); ties go to the smaller id
  int32_t topK = 0;       // 0: all
  float topP = 1;         // (0, 1]
  float minP = 0;         // [0, 1): at least this share of the largest probability
  float repetitionPenalty = 1;  // > 0; divides positive and multiplies negative logits of seen tokens (arXiv 1909.05858)
  float frequencyPenalty = 0;   // subtracted once per occurrence among the generated tokens
  float presencePenalty = 0;    // subtracted once for each generated token that occurred
  uint64_t seed = 0;
  uint64_t draw = 0;  // counts the tokens of one answer
};

// What was said so far, for the penalties. `tokens` is the whole sequence in order;
// tokens[generatedFrom …) are the answer's own.
struct History {
  const int32_t* tokens = nullptr;
  int32_t count = 0;
  int32_t generatedFrom = 0;
};

struct Sampled {
  int32_t token = -1;
  float logprob = 0;  // natural log, of the untouched distribution (temperature 1, no penalties)
};

class Sampler {
 public:
  explicit Sampler(int32_t vocab);
  // `logits` (vocab) is scratch afterwards. Non-finite logits never abort: NaN counts as -inf, and a row with
  // no finite logit throws BROKEN_LOGITS.
  Sampled sample(float* logits, const Sampling& sampling, const History& history);
  // The `count` likeliest tokens of the untouched distribution with their logprobs, likeliest first, ties by
  // smaller id; and the log of the sum of exponentials, by which any token's logprob follows.
  std::vector<std::pair<int32_t, float>> top(const float* logits, int32_t count) const;
  float logSumExp(const float* logits) const;

 private:
  int32_t vocab_;
  std::vector<std::pair<float, int32_t>> candidates_;
  std::vector<int32_t> counts_;
};

}  // namespace pocket
