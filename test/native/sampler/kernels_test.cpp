// The kinds of vector code of the sampler against each other, and against the row itself: same bits, whatever the size
// of the row and whatever stands in it.
#include <algorithm>
#include <cmath>

#include "sampler/row.h"
#include "sampler/softmax.h"
#include "support/check.h"

using namespace pocket;

namespace {

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const int32_t vocab : {1, 15, 16, 17, 255, 256, 257, 1000, 4099}) {
    all.push_back(randomRow(vocab, static_cast<uint32_t>(vocab)));
    Row holes = randomRow(vocab, 7);
    for (size_t i = 0; i < holes.size(); i += 3) holes[i] = i % 2 == 0 ? kNan : kInf;
    all.push_back(holes);
  }
  return all;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

TEST("every kind of vector code gives the same peaks, weights and sums") {
  for (const Row& row : rows()) {
    const int32_t count = static_cast<int32_t>(row.size());
    const size_t blocks = static_cast<size_t>(rowBlocks(count));
    struct Result {
      std::vector<float> peaks, weights;
      std::vector<double> sums, admitted;
      double total, mass, left;
      double over[kBars];
    };
    std::vector<Result> results;
    for (const RowLoops* loops : supportedRowLoops()) {
      Result r{std::vector<float>(blocks),
               Row(row.size()),
               std::vector<double>(blocks),
               std::vector<double>(blocks),
               0,
               0,
               0,
               {}};
      loops->peaks(row.data(), count, r.peaks.data());
      const float peak = *std::max_element(r.peaks.begin(), r.peaks.end());
      r.total = loops->weigh(row.data(), count, peak, 0.7f, r.weights.data(), r.sums.data());
      r.mass = loops->mass(row.data(), count, peak);
      const float bars[kBars] = {0.5f, 0.25f, 0.1f, 0.05f, 0.01f, 0.001f, 1e-4f, 1e-6f};
      loops->masses(r.weights.data(), count, bars, r.over);
      r.left = loops->admit(row.data(), count, 0.5f, 100, 1e-3f, r.weights.data(), r.admitted.data());
      results.push_back(r);
    }
    const Result& first = results.front();
    for (const Result& other : results) {
      CHECK(sameBits(first.peaks, other.peaks));
      CHECK(sameBits(first.weights, other.weights));
      CHECK(first.sums == other.sums && first.admitted == other.admitted);
      CHECK(first.total == other.total && first.mass == other.mass && first.left == other.left);
      CHECK(std::equal(first.over, first.over + kBars, other.over));
    }
    float peak = -kInfinity;
    for (const float logit : row) {
      if (std::isfinite(logit)) peak = std::max(peak, logit);
    }
    CHECK_EQ(*std::max_element(first.peaks.begin(), first.peaks.end()), peak);
  }
}

TEST("a draw from few candidates is the draw from the whole row with the others at zero") {
  for (uint32_t seed = 0; seed < 40; seed++) {
    const int32_t vocab = 1 + static_cast<int32_t>(seed * 131 % 1500);
    Row row = randomRow(vocab, seed);
    for (float& logit : row) logit = std::round(logit * 4) / 4;  // ties at the bar
    Sampling few = warm(0.9f);
    few.topK = 1 + static_cast<int32_t>(seed % 50);
    few.minP = seed % 3 == 0 ? 0.05f : 0;
    Row left = row;
    std::vector<std::pair<float, int32_t>> order;
    for (int32_t i = 0; i < vocab; i++) order.push_back({-row[static_cast<size_t>(i)], i});
    std::sort(order.begin(), order.end());
    for (int32_t i = few.topK; i < vocab; i++) left[static_cast<size_t>(order[static_cast<size_t>(i)].second)] = -kInf;
    for (few.draw = 0; few.draw < 20; few.draw++) {
      Sampling all = few;
      all.topK = 0;
      CHECK_EQ(sample(row, few).token, sample(left, all).token);
    }
  }
}

TEST("without its logprob a token is the same") {
  for (uint32_t seed = 0; seed < 20; seed++) {
    Row row = randomRow(900, seed), again = row;
    Sampler sampler(900);
    Sampling sampling = warm(seed % 2 == 0 ? 0.0f : 1.0f);
    sampling.repetitionPenalty = 1.2f;
    const std::vector<int32_t> said{1, 5, 9, 5};
    const History history{said.data(), 4, 2};
    const Sampled with = sampler.sample(row.data(), sampling, history);
    const Sampled without = sampler.sample(again.data(), sampling, history, {}, false);
    CHECK_EQ(with.token, without.token);
    CHECK(std::isfinite(with.logprob) && std::isnan(without.logprob));
  }
}
