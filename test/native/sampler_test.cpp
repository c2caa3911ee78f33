// The sampler against slow, plain versions of the same definitions: full sorts, doubles, std::exp.
#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check.h"

using namespace pocket;

namespace {

using Row = std::vector<float>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Row randomRow(int32_t vocab, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  Row row(vocab);
  for (float& logit : row) logit = normal(random);
  return row;
}

Sampled sample(Row row, const Sampling& sampling, const std::vector<int32_t>& history = {}, int32_t generatedFrom = 0) {
  Sampler sampler(static_cast<int32_t>(row.size()));
  return sampler.sample(row.data(), sampling, {history.data(), static_cast<int32_t>(history.size()), generatedFrom});
}

// Probabilities after temperature, top-k, top-p and min-p, by sorting everything.
std::vector<double> naive(const Row& row, const Sampling& s) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < row.size(); i++) {
    if (std::isfinite(row[i])) order.push_back(static_cast<int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  if (s.topK > 0 && order.size() > static_cast<size_t>(s.topK)) order.resize(s.topK);
  std::vector<double> result(row.size());
  const auto weight = [&](int32_t token) { return std::exp((double{row[token]} - row[order[0]]) / s.temperature); };
  double total = 0, reached = 0, admitted = 0;
  for (const int32_t token : order) total += weight(token);
  for (const int32_t token : order) {
    if (s.topP < 1 && reached >= s.topP * total) break;
    reached += weight(token);
    if (weight(token) < s.minP) break;
    admitted += result[token] = weight(token);
  }
  for (double& p : result) p /= admitted;
  return result;
}

// Draws `draws` tokens and compares their counts with the naive distribution: no token outside it, and a
// chi-square statistic within five standard deviations of its mean.
void checkDistribution(const Row& row, Sampling sampling, int32_t draws = 40000) {
  const std::vector<double> expected = naive(row, sampling);
  std::vector<int32_t> counts(row.size());
  Sampler sampler(static_cast<int32_t>(row.size()));
  sampling.seed = 11;
  for (int32_t draw = 0; draw < draws; draw++) {
    Row scratch = row;
    sampling.draw = draw;
    counts[sampler.sample(scratch.data(), sampling, {}).token]++;
  }
  double statistic = 0, rest = draws, restExpected = draws;
  int32_t cells = 0;
  for (size_t token = 0; token < row.size(); token++) {
    const double mean = expected[token] * draws;
    if (mean == 0) CHECK_EQ(counts[token], 0);
    if (mean < 10) continue;  // too few for chi-square: all together in the rest
    statistic += (counts[token] - mean) * (counts[token] - mean) / mean;
    rest -= counts[token];
    restExpected -= mean;
    cells++;
  }
  if (restExpected > 10) statistic += (rest - restExpected) * (rest - restExpected) / restExpected;
  CHECK(cells > 0);
  CHECK(statistic < cells + 5 * std::sqrt(2.0 * cells) + 5);
}

Sampling warm(float temperature) {
  Sampling sampling;
  sampling.temperature = temperature;
  return sampling;
}

}  // namespace

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

TEST("draws follow the softmax at any temperature") {
  const Row row = randomRow(300, 1);
  for (const float temperature : {0.3f, 1.0f, 2.5f}) checkDistribution(row, warm(temperature));
}

TEST("draws follow top-k, top-p and min-p, alone and together") {
  const Row row = randomRow(300, 2);
  for (int32_t mask = 1; mask < 8; mask++) {
    Sampling sampling = warm(1.3f);
    if (mask & 1) sampling.topK = 25;
    if (mask & 2) sampling.topP = 0.8f;
    if (mask & 4) sampling.minP = 0.07f;
    checkDistribution(row, sampling, 15000);
  }
}

TEST("the admitted tokens are exactly those of a full sort, over many rows and bounds") {
  std::mt19937 random(3);
  for (int32_t round = 0; round < 60; round++) {
    const Row row = randomRow(700, 100 + round, round % 3 == 0 ? 0.01f : 4);
    Sampling sampling = warm(0.5f + 0.01f * static_cast<float>(random() % 200));
    if (round % 2 == 0) sampling.topK = 1 + static_cast<int32_t>(random() % 800);
    if (round % 5 != 0) sampling.topP = 0.01f + 0.0098f * static_cast<float>(random() % 100);
    const std::vector<double> expected = naive(row, sampling);
    Sampler sampler(700);
    for (int32_t draw = 0; draw < 40; draw++) {
      Row scratch = row;
      sampling.draw = draw;
      CHECK(expected[sampler.sample(scratch.data(), sampling, {}).token] > 0);
    }
  }
}

TEST("ties at the bound of top-k and top-p go to the smaller ids") {
  const Row row(100, 1.5f);
  Sampling byCount = warm(1), byMass = warm(1);
  byCount.topK = 10;
  byMass.topP = 0.0951f;  // nine are too few, ten enough
  int32_t largestByCount = 0, largestByMass = 0;
  for (int32_t draw = 0; draw < 500; draw++) {
    byCount.draw = byMass.draw = draw;
    largestByCount = std::max(largestByCount, sample(row, byCount).token);
    largestByMass = std::max(largestByMass, sample(row, byMass).token);
  }
  CHECK_EQ(largestByCount, 9);
  CHECK_EQ(largestByMass, 9);
}

TEST("top-k of one, a tiny top-p, a large min-p and a tiny temperature are all greedy") {
  const Row row = randomRow(500, 4);
  const int32_t best = sample(row, {}).token;
  Sampling count = warm(5), mass = warm(5), share = warm(5);
  count.topK = 1;
  mass.topP = 1e-6f;
  share.minP = 0.9999f;
  for (int32_t draw = 0; draw < 50; draw++) {
    Sampling cold = warm(1e-30f);
    count.draw = mass.draw = share.draw = cold.draw = draw;
    for (const Sampling& sampling : {count, mass, share, cold}) CHECK_EQ(sample(row, sampling).token, best);
  }
}

TEST("the same seed and draw give the same token, another seed or draw mostly another") {
  const Row row = randomRow(5000, 6, 0.5f);
  int32_t same = 0;
  for (uint64_t draw = 0; draw < 100; draw++) {
    Sampling sampling = warm(1);
    sampling.seed = 9007199254740991u;
    sampling.draw = draw;
    const int32_t token = sample(row, sampling).token;
    CHECK_EQ(sample(row, sampling).token, token);
    sampling.seed--;
    same += sample(row, sampling).token == token ? 1 : 0;
    sampling.seed++;
    sampling.draw++;
    same += sample(row, sampling).token == token ? 1 : 0;
  }
  CHECK(same < 10);
}

TEST("draws are the same on every machine: three known ones, worked out from the definition of the hash") {
  const Row row(1000, 0.0f);
  std::vector<int32_t> tokens;
  for (uint64_t draw = 0; draw < 3; draw++) {
    Sampling sampling = warm(1);
    sampling.seed = 42;
    sampling.draw = draw;
    tokens.push_back(sample(row, sampling).token);
  }
  CHECK_EQ(tokens, (std::vector<int32_t>{343, 955, 486}));
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
  const Sampler sampler(3000);
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
  const Sampler sampler(4);
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
