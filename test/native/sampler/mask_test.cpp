// Masks: only what they allow is sampled, by every filter and at every length, and the rest of a draw is that of a
// row in which the other tokens never were.
#include <cmath>

#include "sampler/row.h"
#include "support/check.h"

using namespace pocket;

namespace {

// As a mask has it, out of ids.
std::vector<int32_t> maskOf(const std::vector<int32_t>& allowed, int32_t words) {
  std::vector<uint32_t> bits(words);
  for (const int32_t id : allowed) bits[id / 32] |= uint32_t{1} << (id % 32);
  return {bits.begin(), bits.end()};
}

Sampled masked(const Row& row, const Sampling& sampling, const std::vector<int32_t>& words,
               const std::vector<int32_t>& history = {}) {
  return sample(row, sampling, history, 0, {words.data(), static_cast<int32_t>(words.size())});
}

}  // namespace

TEST("greedy takes the largest logit that the mask allows and reports its untouched logprob") {
  const Sampled result = masked({1, 3, 2, 0}, {}, maskOf({0, 2}, 1));
  CHECK_EQ(result.token, 2);
  CHECK_NEAR(result.logprob, 2 - std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + 1), 1e-6);
}

TEST("a mask finds its one token wherever it lies, the sign bit of a word included") {
  for (const int32_t vocab : {1, 31, 32, 33, 64, 257, 1000}) {
    for (int32_t at = 0; at < vocab; at += vocab < 100 ? 1 : 31) {
      const std::vector<int32_t> words = maskOf({at}, (vocab + 31) / 32);
      CHECK_EQ(masked(randomRow(vocab, 5), warm(3), words).token, at);
    }
  }
}

TEST("ids beyond the mask's last word may not be sampled, and bits beyond the vocabulary mean nothing") {
  Row row(70, 0);
  row[69] = 90;
  row[3] = 1;
  CHECK_EQ(masked(row, {}, {-1, -1}).token, 3);
  CHECK_EQ(masked(row, {}, {-1, -1, -1, -1}).token, 69);
}

TEST("a masked draw is the draw from the row with all other logits at minus infinity") {
  for (int32_t variant = 0; variant < 16; variant++) {
    Sampling sampling = warm(1.5f);
    if (variant & 1) sampling.topK = 5;
    if (variant & 2) sampling.topP = 0.7f;
    if (variant & 4) sampling.minP = 0.05f;
    if (variant & 8) sampling.repetitionPenalty = 1.3f;
    const Row row = randomRow(300, 7 + variant);
    std::vector<int32_t> allowed;
    Row other(row);
    for (int32_t id = 0; id < 300; id++) {
      if (id % 7 == variant % 7) allowed.push_back(id);
      else other[id] = -kInf;
    }
    for (int32_t draw = 0; draw < 50; draw++) {
      sampling.draw = draw;
      const std::vector<int32_t> history{1, 8, 15, 22, 2};
      CHECK_EQ(masked(row, sampling, maskOf(allowed, 10), history).token, sample(other, sampling, history).token);
    }
  }
}

TEST("a mask that allows no finite logit is BROKEN_LOGITS, and the sampler is as before") {
  Sampler sampler(3);
  Row row{1, kNan, 3}, again{1, kNan, 3};
  const std::vector<int32_t> none{2}, all{7};
  CHECK_THROWS_CODE(sampler.sample(row.data(), warm(1), {}, {none.data(), 1}), "BROKEN_LOGITS");
  CHECK_EQ(sampler.sample(again.data(), {}, {}, {all.data(), 1}).token, 2);
}
