// Converts sums to results: adds the bias, applies SwiGLU. Plain loops, auto-vectorised with the flags of each kernel.
// In an unnamed namespace; linear/kernels/kernel.h gives the reason.
#pragma once

#include <cstring>

#include "cpu/exponential.h"
#include "linear/kernels/quantize_rows.h"

namespace pocket {
namespace {

// y / (1 + e^-y). Clamped to 87 by bit operations: with float comparisons gcc emits branches and scalar code.
inline float silu(float y) {
  constexpr uint32_t kSign = 0x80000000u, kMax = 0x42ae0000u;  // 87
  const uint32_t bits = static_cast<uint32_t>(wordAt(&y)), magnitude = bits & ~kSign;
  const uint32_t kept = (~bits & kSign) | (magnitude < kMax ? magnitude : kMax);
  return y / (1 + exponential(floatAt(&kept)));
}

// The common count of 16 is a constant, so its copy is inlined.
inline void copy(float* to, const float* from, int count) {
  if (count == kPanelRows) std::memcpy(to, from, sizeof(float) * kPanelRows);
  else std::memcpy(to, from, sizeof(float) * count);
}

inline void finishPanel(const Finish& job, int row, int panel) {
  const int n = panel * kPanelRows, lanes = job.lanes - n < kPanelRows ? job.lanes - n : kPanelRows;
  const int64_t at = (static_cast<int64_t>(panel) * job.rows + row) * kPanelRows;
  float results[kPanelRows], bias[kPanelRows] = {};
  if (job.bias != nullptr) copy(bias, job.bias + n, lanes);
  for (int i = 0; i < kPanelRows; i++) results[i] = job.sums[at + i] + bias[i];
  if (job.factor != nullptr) {
    float factorBias[kPanelRows] = {};
    if (job.factorBias != nullptr) copy(factorBias, job.factorBias + n, lanes);
    for (int i = 0; i < kPanelRows; i++) results[i] = silu(results[i]) * (job.factor[at + i] + factorBias[i]);
  }
  copy(job.out + row * job.stride + n, results, lanes);
}

// Rows are far apart in memory, so lines are prefetched kPrefetchRows rows before they are written.
inline void finishRows(const Finish& job) {
  constexpr int kPrefetchRows = 3;
  const int panels = (job.lanes + kPanelRows - 1) / kPanelRows;
  for (int r = 0; r < job.rows; r++)
    for (int p = 0; p < panels; p++) {
      if (r + kPrefetchRows < job.rows)
        __builtin_prefetch(job.out + (r + kPrefetchRows) * job.stride + p * kPanelRows, 1, 3);
      finishPanel(job, r, p);
    }
}

}  // namespace
}  // namespace pocket
