// The inner parts of attention_pairs.h: what the products of two 16-bit numbers are, on the side of the scores and on
// that of the values, the register-blocked loops over them, and the exponential. Unnamed for the reason given in
// attention_kernel.h.
#pragma once

#include <cmath>

#include "attention_pair_tiles.h"

namespace pocket {
namespace {

constexpr int kPairRows = 6;
constexpr int kPairTiles = 4;
constexpr float kSlack = 8;  // weights reach 2^8; bf16 and f32 do not mind

// 2^x by a cubic on [0, 1) that is exact at both ends and off by 1e-4 at most, a twentieth of what rounding a weight
// to bf16 costs. Minus infinity gives zero; not-a-number stays one.
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
  static Sum dot(__m512i query, __m512i key, Sum sum) { return _mm512_dpbf16_ps(sum, pairsOf(query), pairsOf(key)); }
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
                          bitsOf(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + kTile), _mm512_loadu_ps(from + i))));
    }
    return 1;
  }
};

// Both sides in 16-bit integers, each vector with a scale of its own: a query has length kLength, and by Cauchy and
// Schwarz no sum of products leaves 32 bits.
struct Int16Scores {
  typedef int Sum __attribute__((vector_size(64)));  // __m512i would be copied to and fro: it is eight longs
  static constexpr bool kScaled = true;
  static constexpr float kLength = 32700;
  static Sum zero() { return Sum{}; }
  static Sum dot(__m512i query, __m512i key, Sum sum) {
    return (Sum)_mm512_dpwssd_epi32((__m512i)sum, query, key);
  }
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
    return length / kLength;  // of a query that is not a number neither
  }
  // Writes the scales of the 16 keys. A key is taken to be as long as if in each eighth of its dimensions all were as large
  // as the largest there: maxima of sixteen-bit patterns cost less than squares, and no key is longer.
  static void keysOfHalfs(const uint16_t* halfs, int headDim, uint32_t* to, float* scales) {
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512 squares = _mm512_setzero_ps();
    for (const uint16_t *from = halfs, *end = halfs; from < halfs + headDim * kTile;) {
      __m512i most = _mm512_setzero_si512();
      for (end += headDim * kTile / 4; from < end; from += 2 * kTile)
        most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_loadu_si512(from), magnitude));
      const __m512 even = _mm512_cvtph_ps(_mm512_castsi512_si256(most));
      const __m512 odd = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(most, 1));
      squares = _mm512_fmadd_ps(even, even, _mm512_fmadd_ps(odd, odd, squares));
    }
    const float eighth = static_cast<float>(headDim) / 8;
    const __m512 length = _mm512_sqrt_ps(_mm512_mul_ps(squares, _mm512_set1_ps(eighth)));
    // Times a query's length, with what rounding adds to both, below 2^31; and no word beyond 16 bits.
    const float most = std::sqrt(eighth) * 32767, limit = most < 65600 ? most : 65600;
    const __mmask16 some = _mm512_cmp_ps_mask(length, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(limit), length);
    _mm512_storeu_ps(scales, _mm512_mul_ps(length, _mm512_set1_ps(1 / limit)));
    const __m512 rounder = _mm512_set1_ps(0x1.8p23f);  // a float near it has the distance in its low 16 bits
    for (int d = 0; d < headDim; d += 2, to += kTile) {
      const __m512 low = _mm512_fmadd_ps(Vector16::halfs(halfs + d * kTile), inverse, rounder);
      const __m512 high = _mm512_fmadd_ps(Vector16::halfs(halfs + (d + 1) * kTile), inverse, rounder);
      _mm512_storeu_si512(to, lowHalves(low, high));
    }
  }
};

// The sums of a block in f32, on top of those so far; both sides in bf16.
struct Bf16Values {
  using Sum = __m512;
  static Sum first(const float* sums) { return _mm512_loadu_ps(sums); }
  static Sum dot(__m512i weight, __m512i value, Sum sum) {
    return _mm512_dpbf16_ps(sum, pairsOf(weight), pairsOf(value));
  }
  static void last(Sum sum, float, float* sums) { _mm512_storeu_ps(sums, sum); }
};

// The sums of a block in integers, then added times `factor`. At most 64 products of 32,767 and 127: below 2^29.
struct Int16Values {
  using Sum = Int16Scores::Sum;
  static Sum first(const float*) { return Sum{}; }
  static Sum dot(__m512i weight, __m512i value, Sum sum) { return Int16Scores::dot(weight, value, sum); }
  static void last(Sum sum, float factor, float* sums) {
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(Int16Scores::floats(sum), _mm512_set1_ps(factor), _mm512_loadu_ps(sums)));
  }
};

// ---- micro-kernels: their loops have functions of their own, so that the sums stay in registers ----

// `Stored` is how many bytes a word takes in the store where rows are few, and zero where they are many. Few rows cannot
// share what widening bytes to memory costs, so a word of two bytes is widened on the way. And they are done with a block
// before the next has come from memory: what a block needs is fetched while the one before it is computed, a little with
// every step, because many lines at once would fill the queue that loads wait in.

template <int Stored>
inline __m512i loadPairs(const void* tile, int64_t word) {
  if constexpr (Stored == 2) {
    const int8_t* bytes = static_cast<const int8_t*>(tile) + 2 * word;
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
  } else {
    return _mm512_loadu_si512(static_cast<const uint32_t*>(tile) + word);
  }
}

// scores[row][tile][lane] of Rows rows of `steps` words and Tiles tiles; fetches the tiles `ahead`.
template <class Scores, int Stored, int Rows, int Tiles>
__attribute__((noinline)) void scorePairs(const uint32_t* query, int64_t steps, const void* const* tiles,
                                          const void* const* ahead, float* scores) {
  typename Scores::Sum sum[Rows][Tiles];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) sum[r][t] = Scores::zero();
  const void* tile[Tiles];
  const char* next[Tiles];
#pragma GCC unroll 16
  for (int t = 0; t < Tiles; t++) {
    tile[t] = tiles[t];
    next[t] = static_cast<const char*>(ahead[t]);
  }
  for (int64_t s = 0; s < steps * kTile; s += kTile, query++) {
    asm("" : "+r"(query));  // one pointer and its multiples of the stride, not one pointer a row
    __m512i key[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      key[t] = loadPairs<Stored>(tile[t], s);
      if constexpr (Stored > 0) fetch(next[t] + Stored * s);
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
    for (int t = 0; t < Tiles; t++) _mm512_store_ps(scores + (r * Tiles + t) * kTile, Scores::floats(sum[r][t]));
}

// sums[row][0 .. 16 * Vectors) += weights x values; fetches `ahead`. `words` (Rows, Tiles * 8), `factors` (Rows); sums
// and values in rows of headDim.
template <class Values, int Stored, int Rows, int Tiles, int Vectors>
__attribute__((noinline)) void addPairs(const uint32_t* words, const void* const* tiles, const void* const* ahead,
                                        int64_t headDim, int column, const float* factors, float* sums) {
  typename Values::Sum sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; v++) sum[r][v] = Values::first(sums + r * headDim + v * kTile);
  int64_t line = column * kTile / 2 * Stored;
  for (int t = 0; t < Tiles; t++) {
    int64_t value = column;
    const uint32_t* end = words + kTile / 2;
    for (; words < end; words++, value += headDim, line += Vectors * kTile / Tiles * Stored) {
#pragma GCC unroll 16
      for (int next = 0; Stored > 0 && next < Tiles; next++) fetch(static_cast<const char*>(ahead[next]) + line);
      __m512i pairs[Vectors];
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; v++) pairs[v] = loadPairs<Stored>(tiles[t], value + v * kTile);
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

}  // namespace
}  // namespace pocket
