#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "error.h"
#include "sampler/softmax.h"

namespace pocket {

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
float clean(float logit) { return logit >= -kLargest && logit <= kLargest ? logit : -kInfinity; }

bool looksBack(const Sampling& sampling) {
  return sampling.repetitionPenalty != 1 || sampling.frequencyPenalty != 0 || sampling.presencePenalty != 0;
}

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

Sampler::Sampler(int32_t vocab, const RowLoops& loops)
    : vocab_(vocab), loops_(loops), counts_(vocab), weights_(vocab), blockPeaks_(rowBlocks(vocab)),
      blockSums_(rowBlocks(vocab)) {}

Sampled Sampler::sample(float* logits, const Sampling& sampling, const History& history, const Mask& mask,
                        bool logprob) {
  requireRanges(sampling);
  const bool changes = mask.words != nullptr || looksBack(sampling);
  Peak best{-kInfinity, -1};
  double peakLogit = 0, logMass = std::numeric_limits<double>::quiet_NaN();
  if (logprob || !changes) {
    best = peak(logits);
    if (best.token < 0) {
      throw error("BROKEN_LOGITS", "The model gave no finite logit: all %d of the row are NaN or infinite.", vocab_);
    }
    peakLogit = best.logit;
    if (logprob) logMass = std::log(loops_.mass(logits, vocab_, best.logit));
  }
  penalised_.clear();
  if (changes) {
    if (mask.words != nullptr) apply(mask, logits);
    if (looksBack(sampling)) penalise(logits, sampling, history);
    best = peak(logits);
  }
  if (best.token < 0) throw Error("BROKEN_LOGITS", "The model gave no finite logit for a token that may be sampled.");
  const int32_t token = sampling.temperature == 0 ? best.token : drawToken(logits, sampling, best.logit);
  float logit = logits[token];
  for (const Candidate& seen : penalised_) {
    if (seen.token == token) logit = seen.logit;
  }
  return {token, static_cast<float>((logit - peakLogit) - logMass)};
}

std::vector<std::pair<int32_t, float>> Sampler::top(const float* logits, int32_t count) {
  count = std::clamp(count, 0, vocab_);
  std::vector<std::pair<int32_t, float>> result;
  if (count == 0) return result;
  const Peak best = peak(logits);
  selectTop(logits, count);
  std::sort(candidates_.begin(), candidates_.end(), before);
  const double logMass = best.token < 0 ? 0 : std::log(loops_.mass(logits, vocab_, best.logit));
  for (const Candidate& c : candidates_) {
    result.emplace_back(c.token, static_cast<float>((c.logit - static_cast<double>(best.logit)) - logMass));
  }
  for (int32_t token = 0; token < vocab_ && static_cast<int32_t>(result.size()) < count; token++) {
    if (clean(logits[token]) == -kInfinity) result.emplace_back(token, -kInfinity);
  }
  return result;
}

float Sampler::logSumExp(const float* logits) {
  const Peak best = peak(logits);
  if (best.token < 0) return -kInfinity;
  return static_cast<float>(best.logit + std::log(loops_.mass(logits, vocab_, best.logit)));
}

Sampler::Peak Sampler::peak(const float* logits) {
  loops_.peaks(logits, vocab_, blockPeaks_.data());
  const auto block = std::max_element(blockPeaks_.begin(), blockPeaks_.end());
  if (*block == -kInfinity) return {-kInfinity, -1};
  const int32_t start = static_cast<int32_t>(block - blockPeaks_.begin()) * kRowBlock;
  const float* found = std::find(logits + start, logits + std::min(start + kRowBlock, vocab_), *block);
  return {*block, static_cast<int32_t>(found - logits)};
}

// The largest value that at least `count` tokens reach for certain, by blockPeaks_; -inf when none is certain.
float Sampler::certainBar(int32_t count) {
  if (count > static_cast<int32_t>(blockPeaks_.size())) return -kInfinity;
  sortedPeaks_ = blockPeaks_;
  std::nth_element(sortedPeaks_.begin(), sortedPeaks_.begin() + (count - 1), sortedPeaks_.end(), std::greater<float>());
  return sortedPeaks_[static_cast<size_t>(count) - 1];
}

// Fills candidates_ with the `count` first in the order of likelihood, in no particular order, fewer when fewer are
// finite. blockPeaks_ are the row's: blocks that cannot have one are passed over. Keeps twice as many at most:
// whenever that is reached, the better half stays and its last one is the bar for newcomers.
void Sampler::selectTop(const float* logits, int32_t count) {
  candidates_.clear();
  const size_t kept = static_cast<size_t>(count), limit = std::max<size_t>(2 * kept, 64);
  const auto keep = [&] {
    std::nth_element(candidates_.begin(), candidates_.begin() + (kept - 1), candidates_.end(), before);
    candidates_.resize(kept);
  };
  const float reached = certainBar(count);
  float bar = reached == -kInfinity ? -kInfinity : std::nextafter(reached, -kInfinity);
  for (int32_t start = 0; start < vocab_; start += kRowBlock) {
    if (!(blockPeaks_[start / kRowBlock] > bar)) continue;
    const int32_t end = std::min(start + kRowBlock, vocab_);
    for (int32_t token = start; token < end; token++) {
      if (!(logits[token] > bar && logits[token] <= kLargest)) continue;
      candidates_.push_back({logits[token], token});
      if (candidates_.size() < limit) continue;
      keep();
      bar = candidates_.back().logit;
    }
  }
  if (candidates_.size() > kept) keep();
}

// Words of ones, as most are in free text, and of zeros, as most are inside a grammar, cost one comparison.
void Sampler::apply(const Mask& mask, float* logits) const {
  for (int32_t start = 0; start < vocab_; start += 32) {
    const int32_t word = start / 32, end = std::min(start + 32, vocab_);
    const uint32_t bits = word < mask.count ? static_cast<uint32_t>(mask.words[word]) : 0;
    if (bits == ~uint32_t{0}) continue;
    if (bits == 0) {
      std::fill(logits + start, logits + end, -kInfinity);
      continue;
    }
    for (int32_t i = start; i < end; i++) logits[i] = ((bits >> (i - start)) & 1) == 0 ? -kInfinity : logits[i];
  }
}

// Fills penalised_ with the seen tokens and their untouched logits, and lowers them in the row.
void Sampler::penalise(float* logits, const Sampling& sampling, const History& history) {
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

}  // namespace pocket
