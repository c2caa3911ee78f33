// Inner parts of attention/kernels/kernel.h: register-blocked micro-kernels, their dispatch by size, conversion of
// tiles of any type to f32, and the polynomial of the exponential. In an unnamed namespace and written against the same
// V.
#pragma once

#include <cstdint>
#include <cstring>

#include "attention/job.h"

namespace pocket {
namespace {

// 2^f for |f| <= 1/2: polynomial of degree 5, minimax in relative error (1e-7 in exact arithmetic) among those that are
// exactly 1 at 0, so that a row that sees one key gets exactly its value.
template <class V>
typename V::Floats exp2Polynomial(typename V::Floats f) {
  typename V::Floats p = V::set(0.0013264728f);
  p = V::fma(p, f, V::set(0.009671513f));
  p = V::fma(p, f, V::set(0.055507336f));
  p = V::fma(p, f, V::set(0.24022242f));
  p = V::fma(p, f, V::set(0.693147f));
  return V::fma(p, f, V::set(1.0f));
}

// ---- micro-kernels: kRows x kVectors accumulators in registers ----

// scores[row][tile][lane] for Rows rows and Tiles tiles. `q` (rows, steps = headDim), `scores` (rows, kBlockLanes).
template <class V, int Rows, int Tiles>
void scoreTiles(const float* q, int steps, const float* const* tiles, float* scores) {
  constexpr int kPerTile = kTile / V::kWidth;
  typename V::Floats sum[Rows][Tiles * kPerTile];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Tiles * kPerTile; v++) sum[r][v] = V::zero();
  const float* tile[Tiles];
#pragma GCC unroll 16
  for (int t = 0; t < Tiles; t++) tile[t] = tiles[t];
  for (int s = 0; s < steps; s++) {
    typename V::Floats key[Tiles * kPerTile];
#pragma GCC unroll 16
    for (int v = 0; v < Tiles * kPerTile; v++)
      key[v] = V::load(tile[v / kPerTile] + s * kTile + v % kPerTile * V::kWidth);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
      const typename V::Floats query = V::set(q[static_cast<int64_t>(r) * steps + s]);
#pragma GCC unroll 16
      for (int v = 0; v < Tiles * kPerTile; v++) sum[r][v] = V::fma(query, key[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Tiles * kPerTile; v++) V::store(scores + r * kBlockLanes + v * V::kWidth, sum[r][v]);
}

// sums[row][0 .. Vectors * kWidth) += weights x values over `tileCount` tiles. `weights` (rows, kBlockLanes), `sums`
// (rows, headDim) at the first column; `column` is that of the tiles.
template <class V, int Rows, int Vectors>
void addValues(const float* weights, const float* const* tiles, int tileCount, int headDim, int column, float* sums) {
  typename V::Floats sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; v++) sum[r][v] = V::load(sums + static_cast<int64_t>(r) * headDim + v * V::kWidth);
  for (int t = 0; t < tileCount; t++) {
    const float* value = tiles[t] + column;
    const float* weight = weights + t * kTile;
    for (int s = 0; s < kTile; s++) {
      typename V::Floats row[Vectors];
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; v++) row[v] = V::load(value + static_cast<int64_t>(s) * headDim + v * V::kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; r++) {
        const typename V::Floats w = V::set(weight[r * kBlockLanes + s]);
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; v++) sum[r][v] = V::fma(w, row[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; v++) V::store(sums + static_cast<int64_t>(r) * headDim + v * V::kWidth, sum[r][v]);
}

// ---- dispatch to a micro-kernel by row count and width, which are known only at run time ----

template <class V, int Tiles, int Rows = V::kRows>
void scoreRows(int rows, const float* q, int steps, const float* const* tiles, float* scores) {
  if (rows == Rows) return scoreTiles<V, Rows, Tiles>(q, steps, tiles, scores);
  if constexpr (Rows > 1) scoreRows<V, Tiles, Rows - 1>(rows, q, steps, tiles, scores);
}

template <class V, int Tiles = V::kVectors * V::kWidth / kTile>
void scoreBlock(int rows, int tileCount, const float* q, int steps, const float* const* tiles, float* scores) {
  if (tileCount == Tiles) return scoreRows<V, Tiles>(rows, q, steps, tiles, scores);
  if constexpr (Tiles > 1) scoreBlock<V, Tiles - 1>(rows, tileCount, q, steps, tiles, scores);
}

template <class V, int Vectors, int Rows = V::kRows>
void addRows(int rows, const float* weights, const float* const* tiles, int tileCount, int headDim, int column,
             float* sums) {
  if (rows == Rows) return addValues<V, Rows, Vectors>(weights, tiles, tileCount, headDim, column, sums);
  if constexpr (Rows > 1) addRows<V, Vectors, Rows - 1>(rows, weights, tiles, tileCount, headDim, column, sums);
}

template <class V, int Vectors = V::kVectors>
void addColumns(int rows, int vectors, const float* weights, const float* const* tiles, int tileCount, int headDim,
                int column, float* sums) {
  if (vectors == Vectors) return addRows<V, Vectors>(rows, weights, tiles, tileCount, headDim, column, sums);
  if constexpr (Vectors > 1)
    addColumns<V, Vectors - 1>(rows, vectors, weights, tiles, tileCount, headDim, column, sums);
}

// Splits rows into groups of nearly equal size, at most maxRows: 7 becomes 4 + 3, not 6 + 1.
struct RowGroups {
  int count, size, larger;
  RowGroups(int rows, int maxRows) : count((rows + maxRows - 1) / maxRows), size(rows / count), larger(rows % count) {}
  int rows(int group) const { return size + (group < larger ? 1 : 0); }
};

// ---- tiles as f32 ----

// Both functions return a pointer into the store if the tile can be used as it is, else convert to `buffer`.
template <class V>
const float* keyTile(const AttendJob& job, int64_t tile, float* buffer) {
  const int64_t first = tile * kTile * job.headDim;
  if (job.type == KvType::kF32) return static_cast<const float*>(job.keys) + first;
  if (job.type == KvType::kBf16) {
    const uint32_t* pairs = static_cast<const uint32_t*>(job.keys) + first / 2;
    for (int d = 0; d < job.headDim; d += 2)
      for (int l = 0; l < kTile; l += V::kWidth) {
        V::store(buffer + d * kTile + l, V::lowBf16(pairs + d / 2 * kTile + l));
        V::store(buffer + (d + 1) * kTile + l, V::highBf16(pairs + d / 2 * kTile + l));
      }
  } else if (job.type == KvType::kF16) {
    const uint16_t* f16 = static_cast<const uint16_t*>(job.keys) + first;
    for (int i = 0; i < job.headDim * kTile; i += V::kWidth) V::store(buffer + i, V::loadF16(f16 + i));
  } else {
    const int8_t* bytes = static_cast<const int8_t*>(job.keys) + first;
    for (int l = 0; l < kTile; l += V::kWidth) {
      const typename V::Floats scale = V::load(job.keyScales + tile * kTile + l);
      for (int d = 0; d < job.headDim; d += 2) {
        const int8_t* pairs = bytes + d * kTile + 2 * l;
        V::store(buffer + d * kTile + l, V::mul(V::lowBytes(pairs), scale));
        V::store(buffer + (d + 1) * kTile + l, V::mul(V::highBytes(pairs), scale));
      }
    }
  }
  return buffer;
}

// Rows of lanes outside [begin, end) are zero: their weights are zero, but 0 * NaN is NaN.
template <class V>
const float* valueTile(const AttendJob& job, const Segment& segment, float* buffer) {
  const int64_t first = segment.tile * kTile * job.headDim;
  const bool whole = segment.begin == 0 && segment.end == kTile;
  if (job.type == KvType::kF32 && whole) return static_cast<const float*>(job.values) + first;
  if (!whole) std::memset(buffer, 0, sizeof(float) * kTile * job.headDim);
  for (int j = segment.begin; j < segment.end; j++) {
    float* row = buffer + j * job.headDim;
    const int64_t at = first + static_cast<int64_t>(j) * job.headDim;
    if (job.type == KvType::kF32) {
      std::memcpy(row, static_cast<const float*>(job.values) + at, sizeof(float) * job.headDim);
    } else if (job.type == KvType::kF16) {
      const uint16_t* f16 = static_cast<const uint16_t*>(job.values) + at;
      for (int d = 0; d < job.headDim; d += V::kWidth) V::store(row + d, V::loadF16(f16 + d));
    } else if (job.type == KvType::kBf16) {
      const uint32_t* pairs = static_cast<const uint32_t*>(job.values) + (first + j / 2 * 2 * job.headDim) / 2;
      for (int d = 0; d < job.headDim; d += V::kWidth)
        V::store(row + d, j % 2 == 0 ? V::lowBf16(pairs + d) : V::highBf16(pairs + d));
    } else {
      const int8_t* pairs = static_cast<const int8_t*>(job.values) + first + j / 2 * 2 * job.headDim;
      const typename V::Floats scale = V::set(job.valueScales[segment.tile * kTile + j]);
      for (int d = 0; d < job.headDim; d += V::kWidth)
        V::store(row + d, V::mul(j % 2 == 0 ? V::lowBytes(pairs + 2 * d) : V::highBytes(pairs + 2 * d), scale));
    }
  }
  return buffer;
}

}  // namespace
}  // namespace pocket
