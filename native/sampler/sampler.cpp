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

bool usesHistory(const Sampling& sampling) {
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
    : vocab_(vocab),
      loops_(loops),
      counts_(vocab),
      weights_(vocab),
      blockPeaks_(rowBlocks(vocab)),
      blockSums_(rowBlocks(vocab)) {}

Sampled Sampler::sample(float* logits, const Sampling& sampling, const History& history, const Mask& mask,
                        bool logprob) {
  requireRanges(sampling);
  const bool changes = mask.words != nullptr || usesHistory(sampling);
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
    if (usesHistory(sampling)) penalise(logits, sampling, history);
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

// Fast for words that are all ones (most of them in free text) or all zeros (most of them inside a grammar).
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

// ---- the draw: which tokens the filters admit, and the one that the random number selects ----

// Every filter admits a prefix of the order of likelihood, so top-k and top-p together are one last token: top-k
// first, top-p within what it leaves, as a share of that. min-p needs no order. With top-k the exponentials of its
// candidates are the only ones, without it those of the whole row.
int32_t Sampler::drawToken(const float* logits, const Sampling& sampling, float peak) {
  const bool byCount = sampling.topK > 0 && sampling.topK < vocab_;
  return byCount ? drawFromCandidates(logits, sampling, peak) : drawFromRow(logits, sampling, peak);
}

// Gives the token that drawFromRow would, with sums in the same order: the other tokens would add zeros.
int32_t Sampler::drawFromCandidates(const float* logits, const Sampling& sampling, float peak) {
  selectTop(logits, sampling.topK);
  double total = 0;
  for (const Candidate& c : candidates_) {
    float& weight = weights_[static_cast<size_t>(c.token)];
    weigh(&c.logit, 1, peak, sampling.temperature, &weight);
    total += weight;
  }
  if (sampling.topP < 1) {
    const Candidate last = lastOfMass(sampling.topP * total);
    const auto behind = [&](const Candidate& c) { return before(last, c); };
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), behind), candidates_.end());
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  for (Candidate& c : candidates_) {
    const float weight = weights_[static_cast<size_t>(c.token)];
    c.logit = weight >= sampling.minP ? weight : 0.0f;  // from here on its weight
  }
  total = 0;
  for (size_t i = 0; i < candidates_.size();) total += sumOfBlock(i);
  double left = uniform(sampling.seed, sampling.draw) * total;
  for (size_t i = 0; i < candidates_.size();) {
    const size_t first = i;
    const double block = sumOfBlock(i);
    if (left >= block) {
      left -= block;
      continue;
    }
    int32_t selected = candidates_[first].token;
    for (size_t j = first; j < i && left >= 0; j++) {
      left -= candidates_[j].logit;
      if (candidates_[j].logit > 0) selected = candidates_[j].token;
    }
    return selected;
  }
  // Rounding: the random number lies behind the last weight. The last token with a weight gets it.
  size_t selected = candidates_.size() - 1;
  while (candidates_[selected].logit == 0) selected--;
  return candidates_[selected].token;
}

// Sum of the weights of the candidates, by ascending token, in the block of candidates_[i], in the order in which sum()
// adds a block in which all others are zero. Moves `i` behind them.
double Sampler::sumOfBlock(size_t& i) const {
  const int32_t start = candidates_[i].token / kRowBlock * kRowBlock;
  const int32_t size = std::min(kRowBlock, vocab_ - start), laned = size / kLanes * kLanes;
  double lanes[kLanes] = {};
  for (; i < candidates_.size() && candidates_[i].token < start + laned; i++) {
    lanes[(candidates_[i].token - start) % kLanes] += candidates_[i].logit;
  }
  double total = 0;
  for (const double lane : lanes) total += lane;
  for (; i < candidates_.size() && candidates_[i].token < start + size; i++) total += candidates_[i].logit;
  return total;
}

// The weight of the last token of the nucleus is at most `high` and greater than `low`. Sums the weights over bars that
// are equally spaced on a logarithmic scale, and returns the step between two bars that contains it.
Sampler::WeightRange Sampler::refine(const WeightRange& range, double wanted) {
  float bars[kBars];
  double over[kBars];
  const float factor = std::pow(range.low / range.high, 1.0f / kBars);
  for (int32_t i = 0; i < kBars; i++) bars[i] = (i == 0 ? range.high : bars[i - 1]) * factor;
  loops_.masses(weights_.data(), vocab_, bars, over);
  WeightRange refined = range;
  for (int32_t i = 0; i < kBars; i++) {
    // masses() are rounded, so a margin is needed.
    if (over[i] * (1 + 1e-4) < wanted) {
      refined.high = bars[i];
      refined.heavier = over[i];
    }
    refined.most = over[i];
    if (over[i] * (1 - 1e-4) < wanted) continue;
    refined.low = std::max(range.low, bars[i]);
    break;
  }
  return refined;
}

// Fills candidates_ with the tokens of `range` and returns the sum of the heavier ones. No branches inside a block,
// because they would be unpredictable.
double Sampler::gather(const float* logits, const WeightRange& range) {
  gathered_.resize(static_cast<size_t>(vocab_));
  size_t count = 0;
  double heavier = 0;
  for (int32_t start = 0; start < vocab_; start += kRowBlock) {
    if (!(blockSums_[static_cast<size_t>(start / kRowBlock)] > range.low)) continue;
    const int32_t end = std::min(start + kRowBlock, vocab_);
    double heavy = 0;
    for (int32_t token = start; token < end; token++) {
      const float weight = weights_[static_cast<size_t>(token)];
      heavy += weight > range.high ? weight : 0.0f;
      gathered_[count] = {logits[token], token};
      count += (weight > range.low) & !(weight > range.high) ? 1 : 0;
    }
    heavier += heavy;
  }
  candidates_.assign(gathered_.begin(), gathered_.begin() + static_cast<std::ptrdiff_t>(count));
  return heavier;
}

// The last of the likeliest tokens of the whole row whose weights reach `topP` of `total`.
Sampler::Candidate Sampler::lastOfNucleus(const float* logits, float topP, double total) {
  constexpr double kFew = 2048;  // at most so many candidates are ranked; more are first reduced by another refinement
  const double wanted = topP * total;
  // Tokens no heavier than this have less than 1 - topP together, so none of them is among the likeliest that reach
  // topP. Half of it, so that rounding cannot take one that is.
  const float light = static_cast<float>(0.5 * (1.0 - topP) * total / vocab_);
  WeightRange range = refine({1, std::min(light, 0.5f), 0, total}, wanted);
  for (int round = 0; round < 3 && range.most - range.heavier > kFew * range.low; round++)
    range = refine(range, wanted);
  const double heavier = gather(logits, range);
  return lastOfMass(wanted - heavier);
}

// The last token of the shortest prefix of candidates_ whose weights reach `missing`: quickselect by mass instead of by
// count.
Sampler::Candidate Sampler::lastOfMass(double missing) {
  size_t low = 0, high = candidates_.size();
  const auto first = candidates_.begin();
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(first + low, first + middle, first + high, before);
    double upper = 0;
    for (size_t i = low; i < middle; i++) upper += weights_[static_cast<size_t>(candidates_[i].token)];
    if (upper >= missing) {
      high = middle;
    } else {
      missing -= upper;
      low = middle;
    }
  }
  return candidates_[low];
}

// Inverse of the cumulative weights in the order of ids, so that the result does not depend on how the filters found
// their bound.
int32_t Sampler::drawFromRow(const float* logits, const Sampling& sampling, float peak) {
  double total = loops_.weigh(logits, vocab_, peak, sampling.temperature, weights_.data(), blockSums_.data());
  if (sampling.topP < 1 || sampling.minP > 0) {
    Candidate last{-kInfinity, vocab_};
    if (sampling.topP < 1) last = lastOfNucleus(logits, sampling.topP, total);
    total = loops_.admit(logits, vocab_, last.logit, last.token, sampling.minP, weights_.data(), blockSums_.data());
  }
  double left = uniform(sampling.seed, sampling.draw) * total;
  for (int32_t start = 0; start < vocab_; start += kRowBlock) {
    const double block = blockSums_[static_cast<size_t>(start / kRowBlock)];
    if (left >= block) {
      left -= block;
      continue;
    }
    int32_t selected = start;
    const int32_t end = std::min(start + kRowBlock, vocab_);
    for (int32_t i = start; i < end && left >= 0; i++) {
      left -= weights_[static_cast<size_t>(i)];
      if (weights_[static_cast<size_t>(i)] > 0) selected = i;
    }
    return selected;
  }
  // Rounding: the random number lies behind the last weight. The last token with a weight gets it.
  int32_t selected = vocab_ - 1;
  while (weights_[static_cast<size_t>(selected)] == 0) selected--;
  return selected;
}

}  // namespace pocket
