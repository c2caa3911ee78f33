// The text of the loops of sampler/kernels/kernels.h, included by one source per kind of vector register: all of it has internal
// linkage and calls nothing that has not, so that no source's copy is linked in another's place. Inner loops are over
// kLanes or a whole block, in the form that the compiler turns into vector code.
#pragma once

#include <cstdint>
#include <limits>

#include "sampler/kernels/kernels.h"
#include "sampler/softmax.h"

namespace pocket {

namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

inline int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

void peaks(const float* logits, int32_t count, float* blockPeaks) {
  for (int32_t start = 0; start < count; start += kRowBlock) {
    const int32_t end = least(start + kRowBlock, count);
    float lanes[kLanes];
    for (int32_t j = 0; j < kLanes; j++) lanes[j] = -kInfinity;
    int32_t i = start;
    // Both comparisons are false for NaN and the first for what is beyond the largest float.
    for (; i + kLanes <= end; i += kLanes) {
      for (int32_t j = 0; j < kLanes; j++) {
        const float x = logits[i + j] <= kLargest ? logits[i + j] : -kInfinity;
        lanes[j] = x > lanes[j] ? x : lanes[j];
      }
    }
    float largest = -kInfinity;
    for (int32_t j = 0; j < kLanes; j++) largest = lanes[j] > largest ? lanes[j] : largest;
    for (; i < end; i++) {
      if (logits[i] <= kLargest && logits[i] > largest) largest = logits[i];
    }
    blockPeaks[start / kRowBlock] = largest;
  }
}

double weigh(const float* logits, int32_t count, float peak, float temperature, float* weights, double* blockSums) {
  double total = 0;
  for (int32_t start = 0; start < count; start += kRowBlock) {
    const int32_t size = least(kRowBlock, count - start);
    blockSums[start / kRowBlock] = pocket::weigh(logits + start, size, peak, temperature, weights + start);
    total += blockSums[start / kRowBlock];
  }
  return total;
}

double mass(const float* logits, int32_t count, float peak) {
  float weights[kRowBlock];
  double total = 0;
  for (int32_t start = 0; start < count; start += kRowBlock) {
    total += pocket::weigh(logits + start, least(kRowBlock, count - start), peak, 1, weights);
  }
  return total;
}

double admit(const float* logits, int32_t count, float lastLogit, int32_t lastToken, float lightest, float* weights,
             double* blockSums) {
  double total = 0;
  for (int32_t start = 0; start < count; start += kRowBlock) {
    const int32_t end = least(start + kRowBlock, count);
    for (int32_t i = start; i < end; i++) {
      const bool admitted = (logits[i] > lastLogit) | ((logits[i] == lastLogit) & (i <= lastToken));
      weights[i] = admitted & (weights[i] >= lightest) ? weights[i] : 0.0f;
    }
    blockSums[start / kRowBlock] = sum(weights + start, end - start);
    total += blockSums[start / kRowBlock];
  }
  return total;
}

void masses(const float* weights, int32_t count, const float* bars, double* overBars) {
  for (int32_t bar = 0; bar < kBars; bar++) overBars[bar] = 0;
  for (int32_t start = 0; start < count; start += kRowBlock) {
    const int32_t end = least(start + kRowBlock, count);
    for (int32_t bar = 0; bar < kBars; bar++) {
      const float over = bars[bar];
      float lanes[kLanes] = {};
      int32_t i = start;
      for (; i + kLanes <= end; i += kLanes) {
        for (int32_t j = 0; j < kLanes; j++) lanes[j] += weights[i + j] > over ? weights[i + j] : 0.0f;
      }
      double total = 0;
      for (int32_t j = 0; j < kLanes; j++) total += lanes[j];
      for (; i < end; i++) total += weights[i] > over ? weights[i] : 0.0f;
      overBars[bar] += total;
    }
  }
}

}  // namespace

}  // namespace pocket
