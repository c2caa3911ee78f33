// Greedy choice, penalties worked out by hand, broken rows, refused parameters, and the reported logprobs. Draws
// are in draw_test.cpp.
#include <algorithm>
#include <cmath>

#include "sampler/row.h"
#include "support/check.h"

using namespace pocket;

TEST("greedy takes the largest logit, the smaller id of two, and reports its logprob") {
  const Sampled result = sample({1, 3, 2, 3}, {});
  CHECK_EQ(result.token, 1);
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0);
  CHECK_NEAR(result.logprob, 3 - std::log(sum), 1e-6);
}

TEST("greedy finds the largest logit wherever it lies in rows of any length") {
  for (const int32_t vocab : {1, 2, 15, 16, 17, 255, 256, 257, 1000}) {
    for (int32_t at = 0; at < vocab; at += std::max(1, vocab / 7)) {
      Row row = randomRow(vocab, 5);
      row[at] = 50;
      CHECK_EQ(sample(row, {}).token, at);
    }
  }
}

TEST("the repetition penalty divides positive and multiplies negative logits of all seen tokens, once") {
  Sampling sampling;
  sampling.repetitionPenalty = 2;
  CHECK_EQ(sample({4, 3, -1}, sampling, {0, 0}).token, 1);       // 2, 3
  CHECK_EQ(sample({4, 1.9f, -1}, sampling, {0, 0}).token, 0);    // 2, 1.9: once and not twice
  CHECK_EQ(sample({-2, -3, -9}, sampling, {0}).token, 1);        // -4, -3
  CHECK_EQ(sample({-1, -3, -9}, sampling, {0, 1, 2}).token, 0);  // -2, -6, -18
}

TEST("frequency counts each occurrence in the answer, presence one, the prompt none") {
  Sampling frequency, presence;
  frequency.frequencyPenalty = 1;
  presence.presencePenalty = 1;
  CHECK_EQ(sample({5, 4.5f}, frequency, {0, 0, 0}, 3).token, 0);  // prompt only
  CHECK_EQ(sample({5, 4.5f}, frequency, {1, 0}, 1).token, 1);     // 4
  CHECK_EQ(sample({5, 3.5f}, frequency, {1, 0}, 1).token, 0);     // 4
  CHECK_EQ(sample({5, 3.5f}, frequency, {1, 0, 0}, 1).token, 1);  // 3
  CHECK_EQ(sample({5, 3.5f}, presence, {1, 0, 0}, 1).token, 0);   // 4
  CHECK_EQ(sample({5, 4.5f}, presence, {1, 0, 0}, 1).token, 1);   // 4
  frequency.frequencyPenalty = -1;
  CHECK_EQ(sample({5, 4.5f}, frequency, {1}, 0).token, 1);  // 5.5
}

TEST("penalties come in the order repetition, frequency, presence, and leave the logprob untouched") {
  Sampling sampling;
  sampling.repetitionPenalty = 2;
  sampling.frequencyPenalty = 1;
  sampling.presencePenalty = 0.5f;
  // 8 / 2 - 2 * 1 - 0.5 = 1.5
  CHECK_EQ(sample({8, 1.4f}, sampling, {0, 0}).token, 0);
  CHECK_EQ(sample({8, 1.6f}, sampling, {0, 0}).token, 1);
  CHECK_NEAR(sample({8, 1.4f}, sampling, {0, 0}).logprob, -std::log1p(std::exp(-6.6)), 1e-6);
}

TEST("a history with ids outside the vocabulary, such as open gaps, is passed over") {
  Sampling sampling;
  sampling.repetitionPenalty = 2;
  CHECK_EQ(sample({4, 3}, sampling, {-1, 2, 1 << 30}).token, 0);
}

TEST("one sampler keeps nothing from one row to the next") {
  Sampling penalised;
  penalised.presencePenalty = 100;
  Sampler sampler(3);
  const std::vector<int32_t> history{0};
  Row first{5, 4, 3}, second{5, 4, 3};
  CHECK_EQ(sampler.sample(first.data(), penalised, {history.data(), 1, 0}).token, 1);
  CHECK_EQ(sampler.sample(second.data(), penalised, {}).token, 0);
}

TEST("logits that are not finite are never chosen, and a row without any other is BROKEN_LOGITS") {
  CHECK_EQ(sample({kNan, 1, kInf, 2, -kInf}, {}).token, 3);
  for (int32_t mask = 0; mask < 8; mask++) {
    Sampling sampling = warm(2);
    if (mask & 1) sampling.topK = 4;
    if (mask & 2) sampling.topP = 0.99f;
    if (mask & 4) sampling.repetitionPenalty = 1.5f;
    for (int32_t draw = 0; draw < 40; draw++) {
      sampling.draw = draw;
      const Sampled result = sample({kNan, 1, kInf, 2, -kInf}, sampling, {0, 1, 2, 4});
      CHECK(result.token == 1 || result.token == 3);
      CHECK(std::isfinite(result.logprob));
    }
    CHECK_THROWS_CODE(sample({kNan, kNan}, sampling), "BROKEN_LOGITS");
    CHECK_THROWS_CODE(sample({-kInf, kInf, kNan}, sampling), "BROKEN_LOGITS");
  }
}

TEST("extreme logits and penalties neither overflow nor leave the vocabulary") {
  Sampling sampling = warm(1e-38f);
  sampling.repetitionPenalty = 1e30f;
  sampling.frequencyPenalty = 3e38f;
  CHECK_EQ(sample({3e38f, -3e38f}, sampling, {1, 1, 1}).token, 0);
  sampling.temperature = 0;
  CHECK_EQ(sample({-3e38f, -3e38f}, sampling, {0, 1}).token, 0);
  CHECK_NEAR(sample({-3e38f, -3e38f}, sampling, {0, 1}).logprob, -std::log(2.0), 1e-6);
}

TEST("sampling parameters outside their range are refused with their name") {
  const auto refused = [](auto change) {
    Sampling sampling = warm(1);
    change(sampling);
    CHECK_THROWS_CODE(sample({1, 2}, sampling), "BAD_ARGUMENT");
  };
  refused([](Sampling& s) { s.temperature = -1; });
  refused([](Sampling& s) { s.temperature = kNan; });
  refused([](Sampling& s) { s.temperature = kInf; });
  refused([](Sampling& s) { s.topK = -1; });
  refused([](Sampling& s) { s.topP = 0; });
  refused([](Sampling& s) { s.topP = 1.5f; });
  refused([](Sampling& s) { s.minP = 1; });
  refused([](Sampling& s) { s.repetitionPenalty = 0; });
  refused([](Sampling& s) { s.frequencyPenalty = kNan; });
  refused([](Sampling& s) { s.presencePenalty = kInf; });
}

TEST("the top tokens are those of a full sort with the logprobs of a softmax in double") {
  const Row row = randomRow(3000, 8);
  double sum = 0;
  for (const float logit : row) sum += std::exp(double{logit});
  std::vector<int32_t> order(row.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  Sampler sampler(3000);
  CHECK_NEAR(sampler.logSumExp(row.data()), std::log(sum), 2e-6);
  for (const int32_t count : {0, 1, 20, 100, 2999, 3000, 5000}) {
    const auto top = sampler.top(row.data(), count);
    CHECK_EQ(top.size(), std::min(count, 3000));
    for (size_t i = 0; i < top.size(); i++) {
      CHECK_EQ(top[i].first, order[i]);
      CHECK_NEAR(top[i].second, row[order[i]] - std::log(sum), 5e-6);
    }
  }
}

TEST("top reports as many as asked, those that are not finite last") {
  const Row row{kNan, 1, kInf, 1};
  Sampler sampler(4);
  const auto top = sampler.top(row.data(), 3);
  CHECK_EQ(top.size(), 3u);
  CHECK_EQ(top[0].first, 1);
  CHECK_EQ(top[1].first, 3);
  CHECK_EQ(top[2].first, 0);
  CHECK_NEAR(top[1].second, -std::log(2.0), 1e-6);
  CHECK(top[2].second == -kInf);
  const Row broken(4, kNan);
  CHECK(sampler.logSumExp(broken.data()) == -kInf);
  CHECK_EQ(sampler.top(broken.data(), 2).size(), 2u);
}
