// Samples one token from one row of logits. The same logits, parameters, history and draw number give the same token on
// every machine and in every batch, because the random number is a hash of (seed, draw) and not a stream. The order is
// that of the common engines: mask, penalties, temperature, top-k, top-p, min-p, draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sampler/kernels/kernels.h"

namespace pocket {

struct Sampling {
  float temperature = 0;  // 0: the largest logit (greedy); ties go to the smaller id
  int32_t topK = 0;  // 0: all
  float topP = 1;  // (0, 1]
  float minP = 0;  // [0, 1): at least this share of the largest probability
  // > 0; divides positive and multiplies negative logits of seen tokens (Keskar et al., 2019, arXiv 1909.05858)
  float repetitionPenalty = 1;
  float frequencyPenalty = 0;  // subtracted once per occurrence among the generated tokens
  float presencePenalty = 0;  // subtracted once for each generated token that occurred
  uint64_t seed = 0;
  uint64_t draw = 0;  // counts the tokens of one answer
};

// The tokens so far, for the penalties. `tokens` is the whole sequence in order;
// tokens[generatedFrom …) were generated.
struct History {
  const int32_t* tokens = nullptr;
  int32_t count = 0;
  int32_t generatedFrom = 0;
};

// Which tokens may be sampled: bit `id % 32` of word `id / 32`. Ids beyond the last word may not be. Without
// words every token may.
struct Mask {
  const int32_t* words = nullptr;
  int32_t count = 0;
};

struct Sampled {
  int32_t token = -1;
  float logprob = 0;  // natural log, of the untouched distribution (temperature 1, no penalties, no mask)
};

// Rows of logits have `vocab` values. A logit that is not finite (NaN, either infinity) counts as -inf and
// nothing aborts. Keeps scratch memory of a few vocabularies: one call of sample at a time.
class Sampler {
 public:
  // All RowLoops give the same results.
  explicit Sampler(int32_t vocab, const RowLoops& loops = *supportedRowLoops().back());
  // `logits` is scratch afterwards. Tokens of the history outside [0, vocab) are ignored. Throws
  // BROKEN_LOGITS when no logit is finite, or none that the mask allows; BAD_ARGUMENT when a parameter is outside
  // its range above.
  // Without `logprob` the returned logprob is NaN, which saves a pass of exponentials.
  Sampled sample(float* logits, const Sampling& sampling, const History& history, const Mask& mask = {},
                 bool logprob = true);
  // The `count` likeliest tokens of the untouched distribution with their logprobs, likeliest first, ties by
  // smaller id. Always min(count, vocab) of them; those that are not finite come last, with -inf.
  std::vector<std::pair<int32_t, float>> top(const float* logits, int32_t count);
  // Log of the sum of exponentials; a token's logprob is its logit minus this. -inf when no logit is finite.
  float logSumExp(const float* logits);

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };
  struct Peak {
    float logit;  // -inf when no logit is finite
    int32_t token;  // the smallest id that has it; -1 when there is none
  };

  struct WeightRange {
    float high;  // weights relative to the largest, 1
    float low;
    double heavier, most;  // about the sums of the weights over high, and over low
  };

  // The order of likelihood: larger logit first, then smaller id.
  static bool before(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
  // Leaves the row's maxima in blockPeaks_.
  Peak peak(const float* logits);
  float certainBar(int32_t count);
  void selectTop(const float* logits, int32_t count);
  void apply(const Mask& mask, float* logits) const;
  void penalise(float* logits, const Sampling& sampling, const History& history);
  WeightRange refine(const WeightRange& range, double wanted);
  double gather(const float* logits, const WeightRange& range);
  Candidate lastOfNucleus(const float* logits, float topP, double total);
  Candidate lastOfMass(double missing);
  int32_t drawToken(const float* logits, const Sampling& sampling, float peak);
  int32_t drawFromCandidates(const float* logits, const Sampling& sampling, float peak);
  double sumOfBlock(size_t& i) const;
  int32_t drawFromRow(const float* logits, const Sampling& sampling, float peak);

  int32_t vocab_;
  const RowLoops& loops_;
  std::vector<Candidate> candidates_, gathered_;
  std::vector<int32_t> counts_;  // per token: 0 unseen, else 1 + its occurrences in the answer
  std::vector<Candidate> penalised_;  // seen tokens with their untouched logits
  std::vector<float>
      weights_;  // per token, relative to the largest; 0 where not admitted; those of candidates_ only, for few
  std::vector<float> blockPeaks_, sortedPeaks_;  // per block of kRowBlock tokens
  std::vector<double> blockSums_;  // of weights_
};

}  // namespace pocket
