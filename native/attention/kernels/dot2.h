// The attention kernel with dot products of two 16-bit numbers (dot2), for AVX-512 with BF16 and VNNI: twice the
// multiply-adds per instruction of f32. Computes what attention/kernels/kernel.h computes, with a different structure,
// because the products are so fast that all other work counts:
//
//   for each block of up to four tiles of equal delta       keys and values as 16-bit words, 16 KiB, in L1;
//                                                           with few rows converted in registers instead
//     for each group of up to six rows (few rows: eight)    scores in registers
//       weights = 2^(score - reference), rounded to bf16    never stored as f32
//       sums   += weights x values
//
// The reference of a row is a score that the row has seen. It is raised only if a score exceeds it by more than kSlack,
// which is rare, so no row waits for the maximum of its block. Over f16 and bf16 pages the final divisor is the sum of
// the rounded weights.
//
//   pages   scores                               values
//   bf16    bf16 x bf16                          bf16 weights x bf16
//   f16     int16 x int16, one scale each        bf16 weights x bf16
//   int8    int16 x int8 widened to int16        int16 weights, one scale per row and block, x int8 widened
//
// f16 keys are not rounded to bf16: in models whose keys have a few dimensions far larger than the rest (Qwen2.5),
// scores would change by hundredths. native/README.md has the measured divergences.
#pragma once

#include <cfloat>
#include <type_traits>

#include "attention/kernels/dot2_micro.h"

namespace pocket {
namespace {

// `Type` is the type of the pages, any but kF32.
template <KvType Type>
struct AttendDot2 {
  static constexpr bool kBytes = Type == KvType::kInt8;
  using Stored = std::conditional_t<kBytes, int8_t, uint16_t>;
  using Scores = std::conditional_t<Type == KvType::kBf16, Bf16Scores, Int16Scores>;
  using Values = std::conditional_t<kBytes, Int16Values, Bf16Values>;
  using TwoBytes = std::conditional_t<Type == KvType::kF16, F16Cells, WordCells<true>>;
  using FewCells = std::conditional_t<kBytes, Int8Cells, TwoBytes>;
  using ManyCells = WordCells<false>;
  static constexpr int kFew = 12;  // rows

  const AttendJob& job;
  int rows, steps;
  uint32_t* q;  // (rows, headDim / 2), rotated for the current delta, scaled
  uint32_t* keys;  // (kDot2Tiles, 16 * headDim / 2), and the same of values
  uint32_t* values;
  float* sums;  // (rows, headDim)
  float* weights;  // (rows, 16), lanes of the sums of weights
  float* scales;  // (rows) of the queries
  float* references;  // (rows)
  // The current block.
  const void *keyTiles[kDot2Tiles], *valueTiles[kDot2Tiles];
  const void *nextKeys[kDot2Tiles], *nextValues[kDot2Tiles];
  alignas(64) float keyScales[kDot2Tiles * kTile];
  alignas(64) float valueScales[kDot2Tiles * kTile];
  const Segment* segments;
  int tileCount, left;  // segments in the block; from its start to the end of the job
  bool few = false;  // at most kFew rows see the block: decode, or little more

  explicit AttendDot2(const AttendJob& work) : job(work), rows(work.tokenCount * work.group), steps(work.headDim / 2) {
    float* next = work.scratch;
    const auto take = [&next](int64_t floats) {
      float* part = next;
      next += (floats + 15) / 16 * 16;
      return part;
    };
    keys = reinterpret_cast<uint32_t*>(take(int64_t{kDot2Tiles} * kTile * steps));
    values = reinterpret_cast<uint32_t*>(take(int64_t{kDot2Tiles} * kTile * steps));
    q = reinterpret_cast<uint32_t*>(take(int64_t{rows} * steps));
    sums = take(int64_t{rows} * job.headDim);
    weights = take(int64_t{rows} * kTile);
    scales = take(rows);
    references = take(rows);
  }

  void run() {
    std::memset(sums, 0, sizeof(float) * rows * job.headDim);
    std::memset(weights, 0, sizeof(float) * rows * kTile);
    // Not minus infinity: the difference of two references must not be NaN.
    for (int r = 0; r < rows; r++) references[r] = -FLT_MAX;
    forEachBlock(
        job, kDot2Tiles, [this](int token, int delta) { rotate(token, delta); },
        [this](int token, int start, int end) {
          segments = job.segments + start;
          left = job.segmentCount - start;
          tileCount = end - start;
          block(token * job.group);
        });
    writeRows(job, rows, sums, weights, references);
  }

  void rotate(int token, int delta) {
    float* rotated = reinterpret_cast<float*>(keys);  // free between blocks
    rotateQueries(job, token, delta, rotated, [&](int row) {
      scales[row] = Scores::pack(rotated, job.headDim, q + static_cast<int64_t>(row) * steps);
    });
  }

  // Rows [row, rows) against the tiles of the block.
  void block(int row) {
    few = rows - row <= kFew;
    for (int t = 0; t < tileCount; t++) readTile(t);
    // Pad two or three tiles to four; the padding is masked for every row.
    const int width = tileCount == 1 ? 1 : kDot2Tiles;
    for (int t = tileCount; t < width; t++) {
      keyTiles[t] = keyTiles[0];
      valueTiles[t] = valueTiles[0];
      for (int l = 0; l < kTile; l++) keyScales[t * kTile + l] = valueScales[t * kTile + l] = 0;
    }
    const Segment& final = segments[tileCount - 1];
    const int lastCell = final.index + (final.end - final.begin) - 1;
    const bool whole = width == tileCount && lastCell - segments[0].index + 1 == tileCount * kTile;
    const RowGroups groups(rows - row, few ? FewCells::kRows : ManyCells::kRows);
    for (int g = 0, r = row; g < groups.count; r += groups.rows(g++)) {
      if (few) prefetchNext(g, groups.count);
      const bool unmasked = whole && job.tokens[r / job.group].index >= lastCell;
      if (few && width == 1) group<FewCells, 1>(groups.rows(g), r, unmasked);
      else if (few) group<FewCells, kDot2Tiles>(groups.rows(g), r, unmasked);
      else if (width == 1) group<ManyCells, 1>(groups.rows(g), r, unmasked);
      else group<ManyCells, kDot2Tiles>(groups.rows(g), r, unmasked);
    }
  }

  void readTile(int t) {
    const Segment& segment = segments[t];
    const Stored* key = tileOf(job.keys, segment.tile);
    const Stored* value = tileOf(job.values, segment.tile);
    uint32_t* keyWords = keys + t * kTile * steps;
    uint32_t* valueWords = values + t * kTile * steps;
    keyTiles[t] = keyWords;
    valueTiles[t] = valueWords;
    if constexpr (Type == KvType::kF16) {
      float* scale = keyScales + t * kTile;
      Scores::scalesOfF16(key, job.headDim, scale);
      if (!few) {
        int16KeysOfF16(key, scale, job.headDim, keyWords);
        bf16ValuesOfF16(value, segment.begin, segment.end, job.headDim, valueWords);
        return;
      }
      keyTiles[t] = key;
      if (segment.begin == 0 && segment.end == kTile) valueTiles[t] = value;
      else maskF16Values(value, segment.begin, segment.end, job.headDim, reinterpret_cast<uint16_t*>(valueWords));
    } else if constexpr (kBytes) {
      if (few) {
        keyTiles[t] = key;
        valueTiles[t] = value;
      } else {
        widenBytes(key, kTile * steps, keyWords);
        widenBytes(value, kTile * steps, valueWords);
      }
      std::memcpy(keyScales + t * kTile, job.keyScales + segment.tile * kTile, sizeof(float) * kTile);
      const __mmask16 cells = static_cast<__mmask16>((1u << segment.end) - (1u << segment.begin));
      _mm512_store_ps(valueScales + t * kTile, _mm512_maskz_loadu_ps(cells, job.valueScales + segment.tile * kTile));
    } else {
      keyTiles[t] = key;
      if (segment.begin == 0 && segment.end == kTile) valueTiles[t] = value;
      else maskBf16Values(value, segment.begin, segment.end, job.headDim, valueWords);
    }
  }

  // Selects what group `g` prefetches while it computes: its share of the tiles of the next block, and for the other
  // tiles the current ones, which are cached.
  void prefetchNext(int g, int groups) {
    for (int t = 0; t < kDot2Tiles; t++) {
      nextKeys[t] = keyTiles[t];
      nextValues[t] = valueTiles[t];
      if (t % groups != g || t + kDot2Tiles >= left) continue;
      const int64_t next = segments[t + kDot2Tiles].tile;
      nextKeys[t] = tileOf(job.keys, next);
      nextValues[t] = tileOf(job.values, next);
      if constexpr (kBytes) {
        prefetch(job.keyScales + next * kTile);
        prefetch(job.valueScales + next * kTile);
      }
    }
  }

  const Stored* tileOf(const void* side, int64_t tile) const {
    return static_cast<const Stored*>(side) + tile * kTile * job.headDim;
  }

  // ---- rows [row, row + count) of the block ----

  template <class Cells, int Tiles, int Rows = Cells::kRows>
  void group(int count, int row, bool unmasked) {
    if (count == Rows) return attend<Cells, Rows, Tiles>(row, unmasked);
    if constexpr (Rows > 1) group<Cells, Tiles, Rows - 1>(count, row, unmasked);
  }

  template <class Cells, int Rows, int Tiles>
  void attend(int row, bool unmasked) {
    alignas(64) float scores[Rows * Tiles * kTile];
    alignas(64) uint32_t words[(Rows * Tiles + 1) * kTile / 2];  // + 1: a single tile is stored as two
    float factors[Rows];
    // Enough sums to hide the latency of the products; the remaining registers hold converted words.
    constexpr int kWide = Rows > 3 ? Cells::kWide : 4, kScored = Tiles < kWide ? Tiles : kWide;
    const uint32_t* query = q + static_cast<int64_t>(row) * steps;
    for (int t = 0; t < Tiles; t += kScored)
      scoreDot2<Scores, Cells, Rows, kScored>(query, steps, keyTiles + t, nextKeys + t, keyScales + t * kTile,
                                              Tiles * kTile, scores + t * kTile);
    for (int r = 0; r < Rows; r++)
      factors[r] = weigh<Tiles>(row + r, unmasked, scores + r * Tiles * kTile, words + r * Tiles * kTile / 2);
    float* to = sums + static_cast<int64_t>(row) * job.headDim;
    int column = 0;
    for (; column + kWide * kTile <= job.headDim; column += kWide * kTile)
      addValuesDot2<Values, Cells, Rows, Tiles, kWide>(words, valueTiles, nextValues, job.headDim, column, factors,
                                                       to + column);
    for (; column < job.headDim; column += kTile)
      addValuesDot2<Values, Cells, Rows, Tiles, 1>(words, valueTiles, nextValues, job.headDim, column, factors,
                                                   to + column);
  }

  // Replaces the scores of a row by weights, (Tiles * 8) words. Returns the factor of the words.
  template <int Tiles>
  inline __attribute__((always_inline)) float weigh(int row, bool unmasked, float* scores, uint32_t* words) {
    __m512 score[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      score[t] = _mm512_load_ps(scores + t * kTile);
      if constexpr (Scores::kScaled)
        score[t] =
            _mm512_mul_ps(score[t], _mm512_mul_ps(_mm512_set1_ps(scales[row]), _mm512_load_ps(keyScales + t * kTile)));
    }
    if (!unmasked) hide<Tiles>(job.tokens[row / job.group].index, score);
    __m512 maxima = score[0];
    for (int t = 1; t < Tiles; t++) maxima = _mm512_max_ps(maxima, score[t]);
    const __m512 limit = _mm512_set1_ps(references[row] + kSlack);
    if (__builtin_expect(_mm512_cmp_ps_mask(maxima, limit, _CMP_GT_OQ) != 0, 0))
      raiseReference(maxima, job.headDim, sums + int64_t{row} * job.headDim, weights + row * kTile, references[row]);
    const __m512 reference = _mm512_set1_ps(references[row]);
    __m512 weight[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) weight[t] = powerOfTwo(_mm512_sub_ps(score[t], reference));
    if constexpr (kBytes) return storeScaled<Tiles>(row, weight, words);
    else return storeRounded<Tiles>(row, weight, words);
  }

  // Sets the scores of lanes that a query at `index` must not see to minus infinity.
  template <int Tiles>
  inline __attribute__((always_inline)) void hide(int index, __m512* score) const {
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      const uint32_t visible = t < tileCount ? visibleLanes(segments[t], index) : 0;
      score[t] = Vector16::select(visible, score[t], _mm512_set1_ps(-INFINITY));
    }
  }

  template <int Tiles>
  inline __attribute__((always_inline)) float storeRounded(int row, const __m512* weight, uint32_t* words) {
    __m512 total = _mm512_loadu_ps(weights + row * kTile);
    const __m512bh ones = asBf16(_mm512_set1_epi32(0x3f803f80));
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t += 2) {
      const __m512bh pairs = _mm512_cvtne2ps_pbh(t + 1 < Tiles ? weight[t + 1] : _mm512_setzero_ps(), weight[t]);
      total = _mm512_dpbf16_ps(total, pairs, ones);
      _mm512_storeu_si512(words + t * kTile / 2, asBits(pairs));
    }
    _mm512_storeu_ps(weights + row * kTile, total);
    return 1;
  }

  // Multiplies the weights by the scales of the values and scales them so that the largest becomes 32,767.
  template <int Tiles>
  inline __attribute__((always_inline)) float storeScaled(int row, __m512* weight, uint32_t* words) {
    __m512 total = _mm512_loadu_ps(weights + row * kTile), maxima = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      total = _mm512_add_ps(total, weight[t]);
      weight[t] = _mm512_mul_ps(weight[t], _mm512_load_ps(valueScales + t * kTile));
      maxima = _mm512_max_ps(maxima, weight[t]);
    }
    _mm512_storeu_ps(weights + row * kTile, total);
    const float largest = _mm512_reduce_max_ps(maxima);
    const __m512 inverse = _mm512_set1_ps(largest > 0x1p-100f ? 32767.0f / largest : 0.0f);
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(weight[t], inverse));
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + t * kTile / 2), _mm512_cvtepi32_epi16(whole));
    }
    return largest * (1 / 32767.0f);
  }
};

}  // namespace
}  // namespace pocket
