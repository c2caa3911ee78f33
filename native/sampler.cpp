#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.h"
#include "softmax.h"

namespace pocket {

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
float clean(float logit) { return logit >= -kLargest && logit <= kLargest ? logit : -kInfinity; }

void require(bool inRange, const char* name, double value, const char* range) {
  if (!inRange) throw error("BAD_ARGUMENT", "The sampling parameter %s is %g; it must be %s.", name, value, range);
}

void requireRanges(const Sampling& s) {
  const auto finite = [](float x) { return x >= -kLargest && x <= kLargest; };
  require(s.temperature >= 0 && finite(s.temperature), "temperature", s.temperature, "finite and at least 0");
  require(s.topK >= 0, "topK", s.topK, "at least 0");
  require(s.topP > 0 && s.topP <= 1, "topP", s.topP, "over 0 and at most 1");
  require(s.minP >= 0 && s.minP < 1, "minP", s.minP, "at least 0 and under 1");
  require(s.repetitionPenalty > 0 && finite(s.repetitionPenalty), "repetitionPenalty", s.repetitionPenalty,
          "finite and over 0");
  require(finite(s.frequencyPenalty), "frequencyPenalty", s.frequencyPenalty, "finite");
  require(finite(s.presencePenalty), "presencePenalty", s.presencePenalty, "finite");
}

}  // namespace

Sampler::Sampler(int32_t vocab) : vocab_(vocab), counts_(vocab), weights_(vocab) {}

Sampled Sampler::sample(float* logits, const Sampling& sampling, const History& history, const Mask& mask,
                        bool logprob) {
  requireRanges(sampling);
  Peak best = peak(logits);
  if (best.token < 0) {
    throw error("BROKEN_LOGITS", "The model gave no finite logit: all %d of the row are NaN or infinite.", vocab_);
  }
  const double peakLogit = best.logit, logMass = logprob ? std::log(mass(logits, best.logit)) : NAN;
  if (mask.words != nullptr) apply(mask, logits);
  penalise(logits, sampling, history);
  if (mask.words != nullptr || !penalised_.empty()) best = peak(logits);
  if (best.token < 0) throw Error("BROKEN_LOGITS", "The model gave no finite logit for a token that the mask allows.");
  const int32_t token = sampling.temperature == 0 ? best.token : drawToken(logits, sampling, best.logit);
  float logit = logits[token];
  for (const Candidate& seen : penalised_) {
    if (seen.token == token) logit = seen.logit;
  }
  return {token, static_cast<float>((logit - peakLogit) - logMass)};
}

std::vector<std::pair<int32_t, float>> Sampler::top(const float* logits, int32_t count) const {
  count = std::clamp(count, 0, vocab_);
  std::vector<std::pair<int32_t, float>> result;
  if (count == 0) return result;
  std::vector<Candidate> candidates;
  selectTop(logits, count, candidates);
  std::sort(candidates.begin(), candidates.end(), before);
  const double peakLogit = candidates.empty() ? 0 : candidates.front().logit;
  const double logMass = candidates.empty() ? 0 : std::log(mass(logits, candidates.front().logit));
  for (const Candidate& c : candidates) {
    result.emplace_back(c.token, static_cast<float>((c.logit - peakLogit) - logMass));
  }
  for (int32_t token = 0; static_cast<int32_t>(result.size()) < count; token++) {
    if (clean(logits[token]) == -kInfinity) result.emplace_back(token, -kInfinity);
  }
  return result;
}

float Sampler::logSumExp(const float* logits) const {
  const Peak best = peak(logits);
  if (best.token < 0) return -kInfinity;
  return static_cast<float>(best.logit + std::log(mass(logits, best.logit)));
}

// The lanes' comparisons are false for NaN and for what is beyond the largest float.
Sampler::Peak Sampler::peak(const float* logits) const {
  Peak best{-kInfinity, -1};
  for (int32_t start = 0; start < vocab_; start += kBlock) {
    const int32_t end = std::min(start + kBlock, vocab_);
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, -kInfinity);
    int32_t i = start;
    for (; i + kLanes <= end; i += kLanes) {
      for (int32_t j = 0; j < kLanes; j++) {
        const float x = logits[i + j] <= kLargest ? logits[i + j] : -kInfinity;
        lanes[j] = x > lanes[j] ? x : lanes[j];
      }
    }
    float largest = *std::max_element(lanes, lanes + kLanes);
    for (; i < end; i++) largest = std::max(largest, clean(logits[i]));
    if (!(largest > best.logit)) continue;
    best = {largest, static_cast<int32_t>(std::find(logits + start, logits + end, largest) - logits)};
  }
  return best;
}

double Sampler::mass(const float* logits, float peak) const {
  float weights[kBlock];
  double total = 0;
  for (int32_t start = 0; start < vocab_; start += kBlock) {
    total += weigh(logits + start, std::min(kBlock, vocab_ - start), peak, 1, weights);
  }
  return total;
}

// The `count` first in the order of likelihood, in no particular order, fewer when fewer are finite. Keeps twice
// as many at most: whenever that is reached, the better half stays and its last one is the bar for newcomers.
void Sampler::selectTop(const float* logits, int32_t count, std::vector<Candidate>& candidates) const {
  candidates.clear();
  const size_t kept = static_cast<size_t>(count), limit = std::max<size_t>(2 * kept, 64);
  const auto keep = [&] {
    std::nth_element(candidates.begin(), candidates.begin() + (kept - 1), candidates.end(), before);
  };
  float bar = -kInfinity;
  for (int32_t token = 0; token < vocab_; token++) {
    if (!(logits[token] > bar && logits[token] <= kLargest)) continue;
    candidates.push_back({logits[token], token});
    if (candidates.size() < limit) continue;
    keep();
    candidates.resize(kept);
    bar = candidates.back().logit;
  }
  if (candidates.size() <= kept) return;
  keep();
  candidates.resize(kept);
}

// Words of ones, as most are in free text, cost one comparison.
void Sampler::apply(const Mask& mask, float* logits) const {
  for (int32_t start = 0; start < vocab_; start += 32) {
    const int32_t word = start / 32, end = std::min(start + 32, vocab_);
    const uint32_t bits = word < mask.count ? static_cast<uint32_t>(mask.words[word]) : 0;
    if (bits == ~uint32_t{0}) continue;
    for (int32_t i = start; i < end; i++) {
      if (((bits >> (i - start)) & 1) == 0) logits[i] = -kInfinity;
    }
  }
}

// Fills penalised_ with the seen tokens and their untouched logits, and lowers them in the row.
void Sampler::penalise(float* logits, const Sampling& sampling, const History& history) {
  penalised_.clear();
  if (sampling.repetitionPenalty == 1 && sampling.frequencyPenalty == 0 && sampling.presencePenalty == 0) return;
  for (int32_t i = 0; i < history.count; i++) {
    const int32_t token = history.tokens[i];
    if (token < 0 || token >= vocab_) continue;
    if (clean(logits[token]) == -kInfinity) continue;
    if (counts_[token] == 0) {
      counts_[token] = 1;
      penalised_.push_back({logits[token], token});
    }
    if (i >= history.generatedFrom) counts_[token]++;
  }
  for (const Candidate& seen : penalised_) {
    const int32_t occurrences = counts_[seen.token] - 1;
    counts_[seen.token] = 0;
    float logit = seen.logit > 0 ? seen.logit / sampling.repetitionPenalty : seen.logit * sampling.repetitionPenalty;
    logit = std::clamp(logit, -kLargest, kLargest);  // a penalty never makes a row without a finite logit
    if (occurrences > 0) logit -= occurrences * sampling.frequencyPenalty + sampling.presencePenalty;
    logits[seen.token] = std::clamp(logit, -kLargest, kLargest);
  }
}

// Every filter admits a prefix of the order of likelihood, so top-k and top-p together are one last token:
// top-k first, top-p within what it leaves, as a share of that. min-p needs no order and is left to the draw.
// `total` is the sum of weights_.
Sampler::Candidate Sampler::lastAdmitted(const float* logits, const Sampling& sampling, double total) {
  const bool byCount = sampling.topK > 0 && sampling.topK < vocab_;
  if (!byCount && sampling.topP == 1) return {-kInfinity, vocab_};
  if (byCount) {
    selectTop(logits, sampling.topK, candidates_);
    if (sampling.topP == 1) return *std::max_element(candidates_.begin(), candidates_.end(), before);
    total = 0;
    for (const Candidate& c : candidates_) total += weights_[c.token];
  } else {
    // Tokens no heavier than `light` have less than 1 - topP together, so none of them is among the likeliest
    // that reach topP. Half of it, so that rounding cannot take one that is.
    const float light = static_cast<float>(0.5 * (1.0 - sampling.topP) * total / vocab_);
    candidates_.clear();
    for (int32_t token = 0; token < vocab_; token++) {
      if (weights_[token] > light) candidates_.push_back({logits[token], token});
    }
  }
  return lastOfMass(sampling.topP * total);
}

// The last of the shortest prefix of candidates_ whose weights reach `missing`: quickselect, going by mass
// instead of by count.
Sampler::Candidate Sampler::lastOfMass(double missing) {
  size_t low = 0, high = candidates_.size();
  const auto first = candidates_.begin();
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(first + low, first + middle, first + high, before);
    double upper = 0;
    for (size_t i = low; i < middle; i++) upper += weights_[candidates_[i].token];
    if (upper >= missing) {
      high = middle;
    } else {
      missing -= upper;
      low = middle;
    }
  }
  return candidates_[low];
}

// Inverse of the cumulated weights, walked in the order of ids: the same whatever way the filters found their
// bound.
int32_t Sampler::drawToken(const float* logits, const Sampling& sampling, float peak) {
  double total = 0;
  for (int32_t start = 0; start < vocab_; start += kBlock) {
    const int32_t count = std::min(kBlock, vocab_ - start);
    total += weigh(logits + start, count, peak, sampling.temperature, weights_.data() + start);
  }
  const Candidate last = lastAdmitted(logits, sampling, total);
  total = 0;
  for (int32_t start = 0; start < vocab_; start += kBlock) {
    const int32_t end = std::min(start + kBlock, vocab_);
    for (int32_t i = start; i < end; i++) {
      const bool admitted = (logits[i] > last.logit) | ((logits[i] == last.logit) & (i <= last.token));
      weights_[i] = admitted & (weights_[i] >= sampling.minP) ? weights_[i] : 0.0f;
    }
    total += sum(weights_.data() + start, end - start);
  }
  double left = uniform(sampling.seed, sampling.draw) * total;
  for (int32_t start = 0; start < vocab_; start += kBlock) {
    const int32_t end = std::min(start + kBlock, vocab_);
    const double block = sum(weights_.data() + start, end - start);
    if (left >= block) {
      left -= block;
      continue;
    }
    int32_t chosen = start;
    for (int32_t i = start; i < end && left >= 0; i++) {
      left -= weights_[i];
      if (weights_[i] > 0) chosen = i;
    }
    return chosen;
  }
  // Rounding left a rest behind the last weight: it is the last token's.
  int32_t chosen = vocab_ - 1;
  while (weights_[chosen] == 0) chosen--;
  return chosen;
}

}  // namespace pocket
