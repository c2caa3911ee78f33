// The draw: which tokens the filters leave, and the one that the random number falls on. The rest of the sampler is in
// sampler/sampler.cpp.
#include <algorithm>
#include <cmath>

#include "sampler/sampler.h"
#include "sampler/softmax.h"

namespace pocket {

// Every filter admits a prefix of the order of likelihood, so top-k and top-p together are one last token: top-k
// first, top-p within what it leaves, as a share of that. min-p needs no order. With top-k the exponentials of its
// candidates are the only ones, without it those of the whole row.
int32_t Sampler::drawToken(const float* logits, const Sampling& sampling, float peak) {
  const bool byCount = sampling.topK > 0 && sampling.topK < vocab_;
  return byCount ? drawOfFew(logits, sampling, peak) : drawOfAll(logits, sampling, peak);
}

// Gives the token that drawOfAll would, sums in the same order: what it would have added besides is zeros.
int32_t Sampler::drawOfFew(const float* logits, const Sampling& sampling, float peak) {
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
    int32_t chosen = candidates_[first].token;
    for (size_t j = first; j < i && left >= 0; j++) {
      left -= candidates_[j].logit;
      if (candidates_[j].logit > 0) chosen = candidates_[j].token;
    }
    return chosen;
  }
  // Rounding left a rest behind the last weight: it is the last token's.
  size_t chosen = candidates_.size() - 1;
  while (candidates_[chosen].logit == 0) chosen--;
  return candidates_[chosen].token;
}

// The weights of the candidates, by ascending token, that stand in the block of candidates_[i], added up as sum() adds
// up the block with zeros between them. `i` moves behind them.
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

// Where the end of the nucleus lies: its last token is no heavier than `high` and heavier than `low`. Bars that fall
// by equal factors from high to low narrow it to one of the steps between them.
Sampler::Reach Sampler::narrow(const Reach& reach, double wanted) {
  float bars[kBars];
  double over[kBars];
  const float factor = std::pow(reach.low / reach.high, 1.0f / kBars);
  for (int32_t i = 0; i < kBars; i++) bars[i] = (i == 0 ? reach.high : bars[i - 1]) * factor;
  loops_.masses(weights_.data(), vocab_, bars, over);
  Reach narrowed = reach;
  for (int32_t i = 0; i < kBars; i++) {
    // masses() are rounded: only what is certain counts.
    if (over[i] * (1 + 1e-4) < wanted) {
      narrowed.high = bars[i];
      narrowed.heavier = over[i];
    }
    narrowed.most = over[i];
    if (over[i] * (1 - 1e-4) < wanted) continue;
    narrowed.low = std::max(reach.low, bars[i]);
    break;
  }
  return narrowed;
}

// Fills candidates_ with the tokens of `reach` and returns the sum of the heavier ones. Without branches inside a
// block: which way they go is a matter of chance.
double Sampler::gather(const float* logits, const Reach& reach) {
  gathered_.resize(static_cast<size_t>(vocab_));
  size_t count = 0;
  double heavier = 0;
  for (int32_t start = 0; start < vocab_; start += kRowBlock) {
    if (!(blockSums_[static_cast<size_t>(start / kRowBlock)] > reach.low)) continue;
    const int32_t end = std::min(start + kRowBlock, vocab_);
    double heavy = 0;
    for (int32_t token = start; token < end; token++) {
      const float weight = weights_[static_cast<size_t>(token)];
      heavy += weight > reach.high ? weight : 0.0f;
      gathered_[count] = {logits[token], token};
      count += (weight > reach.low) & !(weight > reach.high) ? 1 : 0;
    }
    heavier += heavy;
  }
  candidates_.assign(gathered_.begin(), gathered_.begin() + static_cast<std::ptrdiff_t>(count));
  return heavier;
}

// The last of the likeliest tokens of the whole row whose weights reach `topP` of `total`.
Sampler::Candidate Sampler::lastOfNucleus(const float* logits, float topP, double total) {
  constexpr double kFew = 2048;  // candidates that are ranked rather than counted once more
  const double wanted = topP * total;
  // Tokens no heavier than this have less than 1 - topP together, so none of them is among the likeliest that reach
  // topP. Half of it, so that rounding cannot take one that is.
  const float light = static_cast<float>(0.5 * (1.0 - topP) * total / vocab_);
  Reach reach = narrow({1, std::min(light, 0.5f), 0, total}, wanted);
  for (int turn = 0; turn < 3 && reach.most - reach.heavier > kFew * reach.low; turn++) reach = narrow(reach, wanted);
  const double heavier = gather(logits, reach);
  return lastOfMass(wanted - heavier);
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

// Inverse of the cumulated weights, walked in the order of ids: the same whatever way the filters found their
// bound.
int32_t Sampler::drawOfAll(const float* logits, const Sampling& sampling, float peak) {
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
    int32_t chosen = start;
    const int32_t end = std::min(start + kRowBlock, vocab_);
    for (int32_t i = start; i < end && left >= 0; i++) {
      left -= weights_[static_cast<size_t>(i)];
      if (weights_[static_cast<size_t>(i)] > 0) chosen = i;
    }
    return chosen;
  }
  // Rounding left a rest behind the last weight: it is the last token's.
  int32_t chosen = vocab_ - 1;
  while (weights_[static_cast<size_t>(chosen)] == 0) chosen--;
  return chosen;
}

}  // namespace pocket
