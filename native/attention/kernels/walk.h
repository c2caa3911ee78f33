// How a kernel goes through a job: blocks of neighbouring segments of equal delta, front to back, and before the first of
// a delta the queries turned for it. The same for all kernels; what a block computes is theirs. Unnamed, because every
// attention_<isa>.cpp compiles it under flags of its own.
#pragma once

#include "attention/job.h"

namespace pocket {
namespace {

// rotate(token, delta) turns the queries of tokens [token, tokenCount); those before are not looked at any more.
// block(token, start, end) computes segments [start, end), at most `most`, for the same tokens.
template <class Rotate, class Block>
[[gnu::always_inline]] inline void walk(const AttendJob& job, int most, const Rotate& rotate, const Block& block) {
  const int last = job.tokens[job.tokenCount - 1].index;
  int token = 0;
  for (int s = 0, end = 0; s < job.segmentCount && job.segments[s].index <= last; s = end) {
    const Segment& first = job.segments[s];
    for (end = s + 1; end < job.segmentCount && end - s < most; end++)
      if (job.segments[end].delta != first.delta || job.segments[end].index > last) break;
    while (job.tokens[token].index < first.index) token++;  // these see none of it, nor of what follows
    if (s == 0 || first.delta != job.segments[s - 1].delta) rotate(token, first.delta);
    block(token, s, end);
  }
}

// For each query row of tokens [token, tokenCount): keep(row) with `turned`, (headDim), holding it turned for
// index - delta and scaled, over int8 pages with its pairs' scales too: those that the keys were divided by.
template <class Keep>
[[gnu::always_inline]] inline void turnQueries(const AttendJob& job, int token, int delta, float* turned,
                                               const Keep& keep) {
  const int half = job.headDim / 2;
  for (; token < job.tokenCount; token++) {
    const float* cosines = job.rope + static_cast<int64_t>(job.tokens[token].index - delta) * job.headDim;
    const float* sines = cosines + half;
    for (int h = 0; h < job.group; h++) {
      const float* from = job.q + (static_cast<int64_t>(token) * job.heads + h) * job.headDim;
      for (int d = 0; d < half; d++) {
        turned[d] = (from[d] * cosines[d] - from[half + d] * sines[d]) * job.scoreScale;
        turned[half + d] = (from[half + d] * cosines[d] + from[d] * sines[d]) * job.scoreScale;
      }
      if (job.pairScales != nullptr)
        for (int d = 0; d < job.headDim; d++) turned[d] *= job.pairScales[d];
      keep(token * job.group + h);
    }
  }
}

}  // namespace
}  // namespace pocket
