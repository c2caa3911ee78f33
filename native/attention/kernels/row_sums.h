// What the kernels over 16-bit numbers keep of a query row between blocks, and what becomes of it at the end: sums of
// weighted values (headDim), sums of weights in 16 lanes, and the reference that both are relative to. Needs AVX-512;
// unnamed for the reason given in attention/kernels/kernel.h.
#pragma once

#include <cstring>

#include "attention/job.h"
#include "attention/kernels/vector16.h"

namespace pocket {
namespace {

// The largest score of a block becomes the row's reference. Rare, so it is not to take registers from who calls it.
[[gnu::noinline]] void raiseReference(__m512 most, int headDim, float* sums, float* weights, float& reference) {
  const float raised = _mm512_reduce_max_ps(most);
  const __m512 factor = Vector16::exp2(_mm512_set1_ps(reference - raised));
  for (int d = 0; d < headDim; d += kTile) _mm512_storeu_ps(sums + d, _mm512_mul_ps(_mm512_loadu_ps(sums + d), factor));
  _mm512_storeu_ps(weights, _mm512_mul_ps(_mm512_loadu_ps(weights), factor));
  reference = raised;
}

// The job's rows as results, or as its partial ones. sums (rows, headDim), weights (rows, 16), references (rows).
void giveRows(const AttendJob& job, int rows, const float* sums, const float* weights, const float* references) {
  for (int r = 0; r < rows; r++) {
    const float weight = _mm512_reduce_add_ps(_mm512_loadu_ps(weights + r * kTile));
    const float* from = sums + static_cast<int64_t>(r) * job.headDim;
    if (job.partial != nullptr) {
      std::memcpy(job.partial + static_cast<int64_t>(r) * job.headDim, from, sizeof(float) * job.headDim);
      job.partial[static_cast<int64_t>(rows) * job.headDim + r] = references[r];
      job.partial[static_cast<int64_t>(rows) * (job.headDim + 1) + r] = weight;
      continue;
    }
    float* to = job.out + (static_cast<int64_t>(r / job.group) * job.heads + r % job.group) * job.headDim;
    const __m512 inverse = _mm512_set1_ps(1.0f / weight);
    for (int d = 0; d < job.headDim; d += kTile)
      _mm512_storeu_ps(to + d, _mm512_mul_ps(_mm512_loadu_ps(from + d), inverse));
  }
}

}  // namespace
}  // namespace pocket
