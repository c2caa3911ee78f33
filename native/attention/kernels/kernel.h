// The f32 attention kernel, as a template over a vector type V. An instruction set's .cpp defines V and instantiates
// Attend<V>. Everything is in an unnamed namespace: each .cpp is compiled with its own flags and needs its own copy,
// which the linker must not merge with one compiled for another instruction set.
//
// Online softmax over blocks of keys (Milakov & Gimelshein 2018, arXiv 1805.02867; as in FlashAttention, arXiv
// 2205.14135). Per block of up to kBlockTiles tiles of equal delta:
//
//   scores  (rows, lanes)    = sum over d of broadcast(q[row][d]) * key tile[d][lane 0..15]     no horizontal sums
//   weights (rows, lanes)    = 2^(score - maximum); the sums so far are rescaled when the maximum rises
//   sums    (rows, headDim) += sum over lanes of broadcast(weight[row][lane]) * value tile[lane][d 0..15]
//
// Slots outside the job's cells may hold anything: their scores are replaced, their values are zeroed.
//
// V provides:  Floats     kWidth floats: zero, set, load, store, fma, add, sub, mul, max, select, first,
//                         largest, total, exp2, and conversions loadF16, lowBf16, highBf16, lowBytes, highBytes
//              kRows      query rows of a micro-kernel     kVectors   accumulators per row of it
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention/job.h"
#include "attention/kernels/micro.h"

namespace pocket {
namespace {

// Bit l is set if lane l holds a cell that a query at `index` may see.
inline uint32_t visibleLanes(const Segment& segment, int index) {
  int end = segment.begin + (index - segment.index) + 1;
  if (end > segment.end) end = segment.end;
  return end <= segment.begin ? 0u : (1u << end) - (1u << segment.begin);
}

// ---- the order of blocks, the same for all kernels ----

// Calls rotate(token, delta) before the first block of each delta: rotate the queries of tokens [token, tokenCount).
// Calls block(token, start, end) for segments [start, end) of equal delta, at most `maxSegments`, in order, for the
// same tokens. Tokens before `token` see nothing of the block or of later blocks.
template <class Rotate, class Block>
[[gnu::always_inline]] inline void forEachBlock(const AttendJob& job, int maxSegments, const Rotate& rotate,
                                                const Block& block) {
  const int last = job.tokens[job.tokenCount - 1].index;
  int token = 0;
  for (int s = 0, end = 0; s < job.segmentCount && job.segments[s].index <= last; s = end) {
    const Segment& first = job.segments[s];
    for (end = s + 1; end < job.segmentCount && end - s < maxSegments; end++)
      if (job.segments[end].delta != first.delta || job.segments[end].index > last) break;
    while (job.tokens[token].index < first.index) token++;  // see neither this block nor later ones
    if (s == 0 || first.delta != job.segments[s - 1].delta) rotate(token, first.delta);
    block(token, s, end);
  }
}

// For each query row of tokens [token, tokenCount): fills `rotated` (headDim) with the query, rotated for index - delta
// and scaled, then calls keep(row). Over int8 pages the query is also multiplied by the pair scales that the keys were
// divided by.
template <class Keep>
[[gnu::always_inline]] inline void rotateQueries(const AttendJob& job, int token, int delta, float* rotated,
                                                 const Keep& keep) {
  const int half = job.headDim / 2;
  for (; token < job.tokenCount; token++) {
    const float* cosines = job.rope + static_cast<int64_t>(job.tokens[token].index - delta) * job.headDim;
    const float* sines = cosines + half;
    for (int h = 0; h < job.group; h++) {
      const float* from = job.q + (static_cast<int64_t>(token) * job.heads + h) * job.headDim;
      for (int d = 0; d < half; d++) {
        rotated[d] = (from[d] * cosines[d] - from[half + d] * sines[d]) * job.scoreScale;
        rotated[half + d] = (from[half + d] * cosines[d] + from[d] * sines[d]) * job.scoreScale;
      }
      if (job.pairScales != nullptr)
        for (int d = 0; d < job.headDim; d++) rotated[d] *= job.pairScales[d];
      keep(token * job.group + h);
    }
  }
}

// ---- the kernel ----

template <class V>
struct Attend {
  static constexpr int kScoreTiles = V::kVectors * V::kWidth / kTile;  // in one micro-kernel
  static constexpr int kFewTiles = 4;  // of 64 dimensions in f32, 16 KiB
  static constexpr int kValueTiles = 8;  // in one pass over the rows
  static_assert(kScoreTiles >= 1 && kTile % V::kWidth == 0, "a micro-kernel covers whole tiles");

  const AttendJob& job;
  int rows;
  float* q;  // (rows, headDim), rotated for the current delta, scaled
  float* scores;  // (rows, kBlockLanes), replaced by the weights in place
  float* tiles;  // (kBlockTiles, kTile * headDim)
  float* sums;  // (rows, headDim)
  float* maxima;  // (rows)
  float* weights;  // (rows), the sums of the weights

  explicit Attend(const AttendJob& work) : job(work), rows(work.tokenCount * work.group) {
    float* next = work.scratch;
    q = next;
    scores = next += rows * job.headDim;
    tiles = next += rows * kBlockLanes;
    sums = next += kBlockTiles * kTile * job.headDim;
    maxima = next += rows * job.headDim;
    weights = next + (rows + 15) / 16 * 16;
  }

  void run() {
    std::memset(sums, 0, sizeof(float) * rows * job.headDim);
    for (int r = 0; r < rows; r++) {
      maxima[r] = -FLT_MAX;  // not minus infinity: the difference of two of these must not be NaN
      weights[r] = 0;
    }
    // Decode: blocks that fit the L1 cache. Prefill: fewer steps of the softmax.
    const int blockTiles = job.batchInvariant ? kFewTiles : kBlockTiles;
    forEachBlock(
        job, blockTiles, [this](int token, int delta) { rotate(token, delta); },
        [this](int token, int start, int end) { block(token * job.group, start, end); });
    finish();
  }

  void rotate(int token, int delta) {
    float* rotated = scores;  // free between blocks; a row of it holds a head
    rotateQueries(job, token, delta, rotated, [&](int row) {
      std::memcpy(q + static_cast<int64_t>(row) * job.headDim, rotated, sizeof(float) * job.headDim);
    });
  }

  // Rows [row, rows) against segments [start, end).
  void block(int row, int start, int end) {
    const int tileCount = end - start;
    const RowGroups groups(rows - row, V::kRows);
    const float* operands[kBlockTiles];
    for (int t = 0; t < tileCount; t += kScoreTiles) {
      const int count = tileCount - t < kScoreTiles ? tileCount - t : kScoreTiles;
      for (int i = 0; i < count; i++)
        operands[i] = keyTile<V>(job, job.segments[start + t + i].tile, tiles + i * tileFloats());
      for (int g = 0, r = row; g < groups.count; r += groups.rows(g++))
        scoreBlock<V>(groups.rows(g), count, q + static_cast<int64_t>(r) * job.headDim, job.headDim, operands,
                      scores + r * kBlockLanes + t * kTile);
    }
    const int lastCell = job.segments[end - 1].index + (job.segments[end - 1].end - job.segments[end - 1].begin) - 1;
    const bool whole = lastCell - job.segments[start].index + 1 == tileCount * kTile;
    for (int r = row; r < rows; r++) weigh(r, start, tileCount, whole, lastCell);
    constexpr int kColumns = V::kVectors * V::kWidth;
    for (int t = 0; t < tileCount; t += kValueTiles) {
      const int count = tileCount - t < kValueTiles ? tileCount - t : kValueTiles;
      for (int i = 0; i < count; i++)
        operands[i] = valueTile<V>(job, job.segments[start + t + i], tiles + i * tileFloats());
      for (int column = 0; column < job.headDim; column += kColumns) {
        const int left = (job.headDim - column) / V::kWidth;
        for (int g = 0, r = row; g < groups.count; r += groups.rows(g++))
          addColumns<V>(groups.rows(g), left < V::kVectors ? left : V::kVectors, scores + r * kBlockLanes + t * kTile,
                        operands, count, job.headDim, column, sums + static_cast<int64_t>(r) * job.headDim + column);
      }
    }
  }

  // Replaces the scores of a row by weights, relative to the largest score of the row so far. `whole`: every lane of
  // the block holds a cell; the last has index `lastCell`.
  void weigh(int row, int start, int tileCount, bool whole, int lastCell) {
    float* score = scores + row * kBlockLanes;
    const int index = job.tokens[row / job.group].index;
    if (!whole || index < lastCell) hide(score, start, tileCount, index);
    const float blockMaximum = largest(score, tileCount * kTile);
    const float maximum = blockMaximum > maxima[row] ? blockMaximum : maxima[row];
    const typename V::Floats shift = V::set(maximum);
    typename V::Floats sum = V::zero();
#pragma GCC unroll 2  // the polynomial is one dependency chain
    for (int i = 0; i < tileCount * kTile; i += V::kWidth) {
      const typename V::Floats weight = V::exp2(V::sub(V::load(score + i), shift));
      sum = V::add(sum, weight);
      V::store(score + i, weight);
    }
    if (maximum > maxima[row]) {
      const typename V::Floats factor = V::exp2(V::set(maxima[row] - maximum));
      float* rowSums = sums + static_cast<int64_t>(row) * job.headDim;
      for (int d = 0; d < job.headDim; d += V::kWidth) V::store(rowSums + d, V::mul(V::load(rowSums + d), factor));
      weights[row] *= V::first(factor);
      maxima[row] = maximum;
    }
    weights[row] += V::total(sum);
  }

  // Sets the scores of lanes that a query at `index` must not see to minus infinity.
  void hide(float* score, int start, int tileCount, int index) {
    for (int t = 0; t < tileCount; t++) {
      const uint32_t visible = visibleLanes(job.segments[start + t], index);
      if (visible == 0xffffu) continue;
      for (int l = 0; l < kTile; l += V::kWidth) {
        float* at = score + t * kTile + l;
        V::store(at, V::select(visible >> l, V::load(at), V::set(-INFINITY)));
      }
    }
  }

  // Two chains to hide latency. `count` is a multiple of kTile.
  static float largest(const float* score, int count) {
    typename V::Floats even = V::set(-FLT_MAX), odd = even;
    int i = 0;
    for (; i + 2 * V::kWidth <= count; i += 2 * V::kWidth) {
      even = V::max(even, V::load(score + i));
      odd = V::max(odd, V::load(score + i + V::kWidth));
    }
    if (i < count) even = V::max(even, V::load(score + i));
    return V::largest(V::max(even, odd));
  }

  void finish() {
    if (job.partial != nullptr) {
      float* to = job.partial;
      std::memcpy(to, sums, sizeof(float) * rows * job.headDim);
      std::memcpy(to += rows * job.headDim, maxima, sizeof(float) * rows);
      std::memcpy(to + rows, weights, sizeof(float) * rows);
      return;
    }
    for (int r = 0; r < rows; r++) {
      float* to = job.out + (static_cast<int64_t>(r / job.group) * job.heads + r % job.group) * job.headDim;
      const typename V::Floats inverse = V::set(1.0f / weights[r]);
      const float* from = sums + static_cast<int64_t>(r) * job.headDim;
      for (int d = 0; d < job.headDim; d += V::kWidth) V::store(to + d, V::mul(V::load(from + d), inverse));
    }
  }

  int tileFloats() const { return kTile * job.headDim; }
};

}  // namespace
}  // namespace pocket
