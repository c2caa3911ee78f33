// Inner parts of attention/kernels/dot2.h: 16-bit dot products for scores and for values, the register-blocked loops
// over them, the exponential, and the state that a row keeps between blocks. In an unnamed namespace;
// attention/kernels/kernel.h gives the reason.
#pragma once

#include <cmath>

#include "attention/kernels/dot2_tiles.h"

namespace pocket {
namespace {

constexpr int kDot2Tiles = 4;
constexpr float kSlack = 8;  // weights reach 2^8, harmless in bf16 and f32

// 2^x by a cubic on [0, 1) that is exact at both ends, with an error of at most 1e-4, a twentieth of the rounding to
// bf16. Minus infinity gives zero; NaN stays NaN.
inline __m512 powerOfTwo(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.07826797f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.22630768f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69542435f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

// Both sides in bf16.
struct Bf16Scores {
  using Sum = __m512;
  static constexpr bool kScaled = false;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum dot(__m512i query, __m512i key, Sum sum) { return _mm512_dpbf16_ps(sum, asBf16(query), asBf16(key)); }
  static __m512 floats(Sum sum) { return sum; }
  // Returns the scale of the words.
  static float pack(const float* from, int count, uint32_t* to) {
    for (int i = 0; i < count; i += 2 * kTile) {
      if (i + kTile == count) {
        const __m256bh half = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + i));
        std::memcpy(to + i / 2, &half, sizeof half);
        break;
      }
      _mm512_storeu_si512(to + i / 2,
                          asBits(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + kTile), _mm512_loadu_ps(from + i))));
    }
    return 1;
  }
};

// Both sides in int16, one scale per vector: a query is scaled to length kLength, so by Cauchy-Schwarz no sum of
// products exceeds 32 bits.
struct Int16Scores {
  typedef int Sum __attribute__((vector_size(64)));  // as __m512i (eight longs) gcc copies it needlessly
  static constexpr bool kScaled = true;
  static constexpr float kLength = 32700;
  static Sum zero() { return Sum{}; }
  static Sum dot(__m512i query, __m512i key, Sum sum) { return (Sum)_mm512_dpwssd_epi32((__m512i)sum, query, key); }
  static __m512 floats(Sum sum) { return _mm512_cvtepi32_ps((__m512i)sum); }
  static float pack(const float* from, int count, uint32_t* to) {
    __m512 squares = _mm512_setzero_ps();
    for (int i = 0; i < count; i += kTile) {
      const __m512 x = _mm512_loadu_ps(from + i);
      squares = _mm512_fmadd_ps(x, x, squares);
    }
    const float length = std::sqrt(_mm512_reduce_add_ps(squares));
    const __m512 inverse = _mm512_set1_ps(length > 0 ? kLength / length : 0.0f);
    for (int i = 0; i < count; i += kTile) {
      const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + i), inverse));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i / 2), _mm512_cvtepi32_epi16(whole));
    }
    return length / kLength;  // NaN for a query that contains NaN
  }
  // Writes the scales of the 16 keys, powers of two so that F16Cells can scale by adding. The length of a key is
  // bounded by the largest magnitude in each sixteenth of its dimensions: maxima of 16-bit patterns are cheaper than
  // squares, and the bound is never too small.
  static void scalesOfF16(const uint16_t* f16, int headDim, float* scales) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (const uint16_t *from = f16, *end = f16; from < f16 + headDim * kTile;) {
      __m512i maxima = _mm512_setzero_si512();
      for (end += headDim * kTile / 8; from < end; from += 2 * kTile)
        maxima = _mm512_max_epu16(maxima, _mm512_and_si512(_mm512_loadu_si512(from), magnitude));
      const __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(maxima));
      const __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(maxima, 1));
      even = _mm512_fmadd_ps(first, first, even);
      odd = _mm512_fmadd_ps(second, second, odd);
    }
    const float sixteenth = static_cast<float>(headDim) / 16;
    const __m512 length = _mm512_sqrt_ps(_mm512_mul_ps(_mm512_add_ps(even, odd), _mm512_set1_ps(sixteenth)));
    // Times the length of a query, including rounding of both: below 2^31, and no word exceeds 16 bits.
    const float most = std::sqrt(sixteenth) * 32767, limit = most < 65600 ? most : 65600;
    const __m512 unit = _mm512_mul_ps(length, _mm512_set1_ps(1 / limit));
    const __m512i exponent = _mm512_and_si512(_mm512_castps_si512(unit), _mm512_set1_epi32(0x7f800000));
    const __m512 above = _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32(0x00800000)));
    // NaN and infinity pass through.
    const __mmask16 finite = _mm512_cmp_ps_mask(unit, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    _mm512_storeu_ps(scales, _mm512_mask_mov_ps(unit, finite, above));
  }
};

// Accumulates in f32 onto the sums so far; both sides in bf16.
struct Bf16Values {
  using Sum = __m512;
  static Sum first(const float* sums) { return _mm512_loadu_ps(sums); }
  static Sum dot(__m512i weight, __m512i value, Sum sum) {
    return _mm512_dpbf16_ps(sum, asBf16(weight), asBf16(value));
  }
  static void last(Sum sum, float, float* sums) { _mm512_storeu_ps(sums, sum); }
};

// Sums of a block in int32, then added times `factor`. At most 64 products of 32,767 and 127: below 2^29.
struct Int16Values {
  using Sum = Int16Scores::Sum;
  static Sum first(const float*) { return Sum{}; }
  static Sum dot(__m512i weight, __m512i value, Sum sum) { return Int16Scores::dot(weight, value, sum); }
  static void last(Sum sum, float factor, float* sums) {
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(Int16Scores::floats(sum), _mm512_set1_ps(factor), _mm512_loadu_ps(sums)));
  }
};

// ---- micro-kernels: noinline, so that the sums stay in registers ----

// With few rows the cost of converted words in memory is not amortised, so they are converted in registers, by units
// that the products leave idle. A few rows also finish a block before the next has arrived from memory: prefetch the
// next block during the current one, a little per step, because many lines at once would fill the load queue.

// Prefetches the cache lines of [from, from + Bytes).
template <int Bytes>
inline void prefetchLines(const char* from) {
#pragma GCC unroll 16
  for (int i = 0; i < Bytes; i += 64) prefetch(from + i);
}

// scores[row * stride + tile * 16 + lane] of Rows rows of `steps` words and Tiles tiles. Prefetches `nextTiles`.
template <class Scores, class Cells, int Rows, int Tiles>
__attribute__((noinline)) void scoreDot2(const uint32_t* query, int64_t steps, const void* const* tiles,
                                         const void* const* nextTiles, const float* keyScales, int64_t stride,
                                         float* scores) {
  typename Scores::Sum sum[Rows][Tiles];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) sum[r][t] = Scores::zero();
  const char *tile[Tiles], *next[Tiles];
  __m512 rounder[Tiles];
#pragma GCC unroll 16
  for (int t = 0; t < Tiles; t++) {
    tile[t] = static_cast<const char*>(tiles[t]);
    if constexpr (Cells::kPrefetch) next[t] = static_cast<const char*>(nextTiles[t]);
    rounder[t] = Cells::rounder(keyScales + t * kTile);
  }
  for (int64_t s = 0; s < steps * kTile * Cells::kBytes; s += kTile * Cells::kBytes, query++) {
    asm("" : "+r"(query));  // makes gcc use one pointer plus offsets, not one pointer per row
    __m512i key[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      key[t] = Cells::key(tile[t] + s, rounder[t]);
      if constexpr (Cells::kPrefetch) prefetch(next[t] + s);
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
      const __m512i word = _mm512_set1_epi32(static_cast<int>(query[r * steps]));
#pragma GCC unroll 16
      for (int t = 0; t < Tiles; t++) sum[r][t] = Scores::dot(word, key[t], sum[r][t]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) _mm512_store_ps(scores + r * stride + t * kTile, Scores::floats(sum[r][t]));
}

// sums[row][0 .. 16 * Vectors) += weights x values. `words` (Rows, Tiles * 8), `factors` (Rows); sums and values in
// rows of headDim. Prefetches `nextTiles`, which is unused if Cells::kPrefetch is false.
template <class Values, class Cells, int Rows, int Tiles, int Vectors>
__attribute__((noinline)) void addValuesDot2(const uint32_t* words, const void* const* tiles,
                                             const void* const* nextTiles, int64_t headDim, int column,
                                             const float* factors, float* sums) {
  typename Values::Sum sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; v++) sum[r][v] = Values::first(sums + r * headDim + v * kTile);
  const int64_t step = headDim * Cells::kBytes;
  for (int t = 0; t < Tiles; t++) {
    const char* tile = static_cast<const char*>(tiles[t]) + column * Cells::kValueBytes;
    const char* next = nullptr;
    if constexpr (Cells::kPrefetch) next = static_cast<const char*>(nextTiles[t]) + column * Cells::kBytes;
    const uint32_t* end = words + kTile / 2;
    for (; words < end; words++, tile += step) {
      if constexpr (Cells::kPrefetch) {
        prefetchLines<Vectors * kTile * Cells::kBytes>(next);
        next += step;
      }
      __m512i pairs[Vectors];
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; v++) pairs[v] = Cells::value(tile + v * kTile * Cells::kValueBytes, headDim);
#pragma GCC unroll 16
      for (int r = 0; r < Rows; r++) {
        const __m512i weight = _mm512_set1_epi32(static_cast<int>(words[r * Tiles * (kTile / 2)]));
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; v++) sum[r][v] = Values::dot(weight, pairs[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; v++) Values::last(sum[r][v], factors[r], sums + r * headDim + v * kTile);
}

// ---- state of a row between blocks: sums (headDim), sums of weights (16 lanes), reference of both ----

// Raises the reference of a row to the largest score of the block. Rare; noinline saves registers of the caller.
[[gnu::noinline]] void raiseReference(__m512 maxima, int headDim, float* sums, float* weights, float& reference) {
  const float raised = _mm512_reduce_max_ps(maxima);
  const __m512 factor = Vector16::exp2(_mm512_set1_ps(reference - raised));
  for (int d = 0; d < headDim; d += kTile) _mm512_storeu_ps(sums + d, _mm512_mul_ps(_mm512_loadu_ps(sums + d), factor));
  _mm512_storeu_ps(weights, _mm512_mul_ps(_mm512_loadu_ps(weights), factor));
  reference = raised;
}

// Writes the rows as results or as partial results. sums (rows, headDim), weights (rows, 16), references (rows).
void writeRows(const AttendJob& job, int rows, const float* sums, const float* weights, const float* references) {
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
