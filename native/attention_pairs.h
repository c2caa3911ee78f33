// The attention kernel over words of two 16-bit numbers, for AVX-512 with bf16 and VNNI: twice the multiply-adds of
// f32 an instruction. Like attention_kernel.h in what it computes; its own in how, because here the products are
// so fast that everything beside them counts:
//
//   for each block of up to four tiles of equal delta       keys and values as words, 16 KiB, in the first-level cache
//     for each group of up to six rows                      scores in registers
//       weights = 2^(score - reference), rounded to bf16    never in memory as f32
//       sums   += weights x values
//
// A row's reference is a score that it has met; it is raised when a score exceeds it by more than kSlack, which is
// rare, so no row waits for the maximum of its block. Over f16 and bf16 pages the divisor at the end is the sum of the
// weights as rounded.
//
//   pages   scores                          values
//   bf16    bf16 x bf16                     bf16 weights x bf16
//   f16     int16 x int16, scale a vector   bf16 weights x bf16
//   int8    int16 x int8 widened            int16 weights, scale a row and block, x int8 widened
//
// Keys are not rounded to bf16: where a model's keys have a few dimensions far larger than the rest, as Qwen2.5's do, the
// scores would move by hundredths. native/README.md has the divergences measured.
#pragma once

#include <cfloat>
#include <cmath>
#include <type_traits>

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

// Both sides in 16-bit integers, each vector with a scale of its own. A sum of products stays below 2^30 by
// Cauchy and Schwarz, as long as no side is longer than kLength.
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
  // Writes the scales of the 16 keys.
  static void keysOfHalfs(const uint16_t* halfs, int headDim, uint32_t* to, float* scales) {
    __m512 even = _mm512_setzero_ps(), odd = even;
    for (int d = 0; d < headDim; d += 2) {
      const __m512 a = Vector16::halfs(halfs + d * kTile), b = Vector16::halfs(halfs + (d + 1) * kTile);
      even = _mm512_fmadd_ps(a, a, even);
      odd = _mm512_fmadd_ps(b, b, odd);
    }
    const __m512 length = _mm512_sqrt_ps(_mm512_add_ps(even, odd));
    const __mmask16 some = _mm512_cmp_ps_mask(length, _mm512_setzero_ps(), _CMP_GT_OQ);
    const __m512 inverse = _mm512_maskz_div_ps(some, _mm512_set1_ps(kLength), length);
    _mm512_storeu_ps(scales, _mm512_mul_ps(length, _mm512_set1_ps(1 / kLength)));
    for (int d = 0; d < headDim; d += 2, to += kTile) {
      const __m512 a = Vector16::halfs(halfs + d * kTile), b = Vector16::halfs(halfs + (d + 1) * kTile);
      const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
      const __m512i high = _mm512_slli_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)), 16);
      _mm512_storeu_si512(to, _mm512_mask_mov_epi16(high, 0x55555555u, low));
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

// Sixteen words of a tile, or, where `Bytes`, of bytes in pairs that are widened on the way.
template <bool Bytes>
inline __m512i loadPairs(const void* tile, int64_t word) {
  if constexpr (Bytes) {
    const int8_t* bytes = static_cast<const int8_t*>(tile) + 2 * word;
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
  } else {
    return _mm512_loadu_si512(static_cast<const uint32_t*>(tile) + word);
  }
}

// scores[row][tile][lane] of Rows rows of `steps` words and Tiles tiles.
template <class Scores, bool Bytes, int Rows, int Tiles>
__attribute__((noinline)) void scorePairs(const uint32_t* query, int64_t steps, const void* const* tiles,
                                          float* scores) {
  typename Scores::Sum sum[Rows][Tiles];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) sum[r][t] = Scores::zero();
  const void* tile[Tiles];
#pragma GCC unroll 16
  for (int t = 0; t < Tiles; t++) tile[t] = tiles[t];
  for (int64_t s = 0; s < steps * kTile; s += kTile, query++) {
    asm("" : "+r"(query));  // one pointer and its multiples of the stride, not one pointer a row
    __m512i key[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) key[t] = loadPairs<Bytes>(tile[t], s);
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

// sums[row][0 .. 16 * Vectors) += weights x values. `words` (Rows, Tiles * 8), `factors` (Rows); sums and values in rows
// of headDim.
template <class Values, bool Bytes, int Rows, int Tiles, int Vectors>
__attribute__((noinline)) void addPairs(const uint32_t* words, const void* const* tiles, int64_t headDim, int column,
                                        const float* factors, float* sums) {
  typename Values::Sum sum[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; r++)
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; v++) sum[r][v] = Values::first(sums + r * headDim + v * kTile);
  for (int t = 0; t < Tiles; t++) {
    int64_t value = column;
    const uint32_t* end = words + kTile / 2;
    for (; words < end; words++, value += headDim) {
      __m512i pairs[Vectors];
#pragma GCC unroll 16
      for (int v = 0; v < Vectors; v++) pairs[v] = loadPairs<Bytes>(tiles[t], value + v * kTile);
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

// `Type` is that of the pages, any but kF32.
template <KvType Type>
struct AttendPairs {
  static constexpr bool kBytes = Type == KvType::kInt8;
  using Scores = std::conditional_t<Type == KvType::kBf16, Bf16Scores, Int16Scores>;
  using Values = std::conditional_t<kBytes, Int16Values, Bf16Values>;

  const AttendJob& job;
  int rows, steps;
  bool narrow;  // bytes stay bytes: too few rows to share what widening them to memory would cost
  uint32_t* q;  // (rows, headDim / 2), rotated for the delta at hand, scaled
  uint32_t* keys;  // (kPairTiles, 16 * headDim / 2), and the same of values
  uint32_t* values;
  float* sums;  // (rows, headDim)
  float* weights;  // (rows, 16), lanes of the sums of weights
  float* scales;  // (rows) of the queries
  float* references;  // (rows)
  // Of the block at hand.
  const void* keyTiles[kPairTiles];
  const void* valueTiles[kPairTiles];
  alignas(64) float keyScales[kPairTiles * kTile];
  alignas(64) float valueScales[kPairTiles * kTile];
  const Segment* segments;
  int tileCount;

  explicit AttendPairs(const AttendJob& work)
      : job(work), rows(work.tokenCount * work.group), steps(work.headDim / 2),
        narrow(kBytes && rows <= 2 * kPairRows) {
    float* next = work.scratch;
    const auto take = [&next](int64_t floats) {
      float* part = next;
      next += (floats + 15) / 16 * 16;
      return part;
    };
    keys = reinterpret_cast<uint32_t*>(take(int64_t{kPairTiles} * kTile * steps));
    values = reinterpret_cast<uint32_t*>(take(int64_t{kPairTiles} * kTile * steps));
    q = reinterpret_cast<uint32_t*>(take(int64_t{rows} * steps));
    sums = take(int64_t{rows} * job.headDim);
    weights = take(int64_t{rows} * kTile);
    scales = take(rows);
    references = take(rows);
  }

  void run() {
    std::memset(sums, 0, sizeof(float) * rows * job.headDim);
    std::memset(weights, 0, sizeof(float) * rows * kTile);
    // And not minus infinity: a difference of two of these must be a number.
    for (int r = 0; r < rows; r++) references[r] = -FLT_MAX;
    const int last = job.tokens[job.tokenCount - 1].index;
    int token = 0;
    for (int s = 0, end = 0; s < job.segmentCount && job.segments[s].index <= last; s = end) {
      const Segment& first = job.segments[s];
      for (end = s + 1; end < job.segmentCount && end - s < kPairTiles; end++)
        if (job.segments[end].delta != first.delta || job.segments[end].index > last) break;
      while (job.tokens[token].index < first.index) token++;  // these see none of it, nor of what follows
      if (s == 0 || first.delta != job.segments[s - 1].delta) rotate(token, first.delta);
      segments = &first;
      tileCount = end - s;
      block(token * job.group);
    }
    finish();
  }

  // Tokens [token, tokenCount) turned for index - delta; those before are not looked at any more.
  void rotate(int token, int delta) {
    const int half = job.headDim / 2;
    float* turned = reinterpret_cast<float*>(keys);  // free between blocks
    for (; token < job.tokenCount; token++) {
      const float* cosines = job.rope + static_cast<int64_t>(job.tokens[token].index - delta) * job.headDim;
      const float* sines = cosines + half;
      for (int h = 0; h < job.group; h++) {
        const float* from = job.q + (static_cast<int64_t>(token) * job.heads + h) * job.headDim;
        for (int d = 0; d < half; d++) {
          turned[d] = (from[d] * cosines[d] - from[half + d] * sines[d]) * job.scoreScale;
          turned[half + d] = (from[half + d] * cosines[d] + from[d] * sines[d]) * job.scoreScale;
        }
        const int row = token * job.group + h;
        scales[row] = Scores::pack(turned, job.headDim, q + static_cast<int64_t>(row) * steps);
      }
    }
  }

  // Rows [row, rows) over the tiles of the block.
  void block(int row) {
    for (int t = 0; t < tileCount; t++) readTile(t);
    // Two or three tiles are four of which nobody sees the last.
    const int width = tileCount == 1 ? 1 : kPairTiles;
    for (int t = tileCount; t < width; t++) {
      keyTiles[t] = keyTiles[0];
      valueTiles[t] = valueTiles[0];
      for (int l = 0; l < kTile; l++) keyScales[t * kTile + l] = valueScales[t * kTile + l] = 0;
    }
    const Segment& final = segments[tileCount - 1];
    const int lastCell = final.index + (final.end - final.begin) - 1;
    const bool whole = width == tileCount && lastCell - segments[0].index + 1 == tileCount * kTile;
    const RowGroups groups(rows - row, kPairRows);
    for (int g = 0, r = row; g < groups.count; r += groups.rows(g++)) {
      const bool open = whole && job.tokens[r / job.group].index >= lastCell;
      if (width == 1) group<1>(groups.rows(g), r, open);
      else group<kPairTiles>(groups.rows(g), r, open);
    }
  }

  void readTile(int t) {
    const Segment& segment = segments[t];
    const int64_t first = segment.tile * kTile * job.headDim;
    uint32_t* key = keys + t * kTile * steps;
    uint32_t* value = values + t * kTile * steps;
    keyTiles[t] = key;
    valueTiles[t] = value;
    if constexpr (Type == KvType::kF16) {
      const uint16_t* halfs = static_cast<const uint16_t*>(job.keys) + first;
      Scores::keysOfHalfs(halfs, job.headDim, key, keyScales + t * kTile);
      valuesOfHalfs(static_cast<const uint16_t*>(job.values) + first, segment.begin, segment.end, job.headDim, value);
    } else if constexpr (kBytes) {
      const int8_t* keyBytes = static_cast<const int8_t*>(job.keys) + first;
      const int8_t* valueBytes = static_cast<const int8_t*>(job.values) + first;
      if (narrow) {
        keyTiles[t] = keyBytes;
        valueTiles[t] = valueBytes;
      } else {
        widenBytes(keyBytes, kTile * steps, key);
        widenBytes(valueBytes, kTile * steps, value);
      }
      std::memcpy(keyScales + t * kTile, job.keyScales + segment.tile * kTile, sizeof(float) * kTile);
      const __mmask16 cells = static_cast<__mmask16>((1u << segment.end) - (1u << segment.begin));
      _mm512_store_ps(valueScales + t * kTile, _mm512_maskz_loadu_ps(cells, job.valueScales + segment.tile * kTile));
    } else {
      keyTiles[t] = static_cast<const uint32_t*>(job.keys) + first / 2;
      const uint32_t* pairs = static_cast<const uint32_t*>(job.values) + first / 2;
      if (segment.begin == 0 && segment.end == kTile) valueTiles[t] = pairs;
      else valuesOfPairs(pairs, segment.begin, segment.end, job.headDim, value);
    }
  }

  // ---- rows [row, row + count) of the block ----

  template <int Tiles, int Rows = kPairRows>
  void group(int count, int row, bool open) {
    if (count == Rows) {
      if constexpr (kBytes)
        if (narrow) return attend<Rows, Tiles, true>(row, open);
      return attend<Rows, Tiles, false>(row, open);
    }
    if constexpr (Rows > 1) group<Tiles, Rows - 1>(count, row, open);
  }

  template <int Rows, int Tiles, bool Bytes>
  void attend(int row, bool open) {
    alignas(64) float scores[Rows * Tiles * kTile];
    alignas(64) uint32_t words[Rows * Tiles * kTile / 2];
    float factors[Rows];
    scorePairs<Scores, Bytes, Rows, Tiles>(q + static_cast<int64_t>(row) * steps, steps, keyTiles, scores);
    for (int r = 0; r < Rows; r++)
      factors[r] = weigh<Tiles>(row + r, open, scores + r * Tiles * kTile, words + r * Tiles * kTile / 2);
    constexpr int kVectors = 4;
    float* to = sums + static_cast<int64_t>(row) * job.headDim;
    int column = 0;
    for (; column + kVectors * kTile <= job.headDim; column += kVectors * kTile)
      addPairs<Values, Bytes, Rows, Tiles, kVectors>(words, valueTiles, job.headDim, column, factors, to + column);
    for (; column < job.headDim; column += kTile)
      addPairs<Values, Bytes, Rows, Tiles, 1>(words, valueTiles, job.headDim, column, factors, to + column);
  }

  // Turns the scores of a row into weights, (Tiles * 8) words. Returns the factor of the words.
  template <int Tiles>
  inline __attribute__((always_inline)) float weigh(int row, bool open, float* scores, uint32_t* words) {
    __m512 score[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      score[t] = _mm512_load_ps(scores + t * kTile);
      if constexpr (Scores::kScaled)
        score[t] = _mm512_mul_ps(score[t], _mm512_mul_ps(_mm512_set1_ps(scales[row]), _mm512_load_ps(keyScales + t * kTile)));
    }
    if (!open) hide<Tiles>(job.tokens[row / job.group].index, score);
    __m512 most = score[0];
#pragma GCC unroll 16
    for (int t = 1; t < Tiles; t++) most = _mm512_max_ps(most, score[t]);
    const __m512 limit = _mm512_set1_ps(references[row] + kSlack);
    if (__builtin_expect(_mm512_cmp_ps_mask(most, limit, _CMP_GT_OQ) != 0, 0)) raise(row, most);
    const __m512 reference = _mm512_set1_ps(references[row]);
    __m512 weight[Tiles];
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) weight[t] = powerOfTwo(_mm512_sub_ps(score[t], reference));
    if constexpr (kBytes) return storeScaled<Tiles>(row, weight, words);
    else return storeRounded<Tiles>(row, weight, words);
  }

  // Replaces the scores of lanes that a query at `index` may not see.
  template <int Tiles>
  inline __attribute__((always_inline)) void hide(int index, __m512* score) const {
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      const uint32_t visible = t < tileCount ? visibleLanes(segments[t], index) : 0;
      score[t] = Vector16::select(visible, score[t], _mm512_set1_ps(-INFINITY));
    }
  }

  __attribute__((noinline)) void raise(int row, __m512 most) {
    const float reference = _mm512_reduce_max_ps(most);
    const __m512 factor = Vector16::exp2(_mm512_set1_ps(references[row] - reference));
    float* sum = sums + static_cast<int64_t>(row) * job.headDim;
    for (int d = 0; d < job.headDim; d += kTile) _mm512_storeu_ps(sum + d, _mm512_mul_ps(_mm512_loadu_ps(sum + d), factor));
    float* weight = weights + row * kTile;
    _mm512_storeu_ps(weight, _mm512_mul_ps(_mm512_loadu_ps(weight), factor));
    references[row] = reference;
  }

  template <int Tiles>
  inline __attribute__((always_inline)) float storeRounded(int row, const __m512* weight, uint32_t* words) {
    __m512 total = _mm512_loadu_ps(weights + row * kTile);
    const __m512bh ones = pairsOf(_mm512_set1_epi32(0x3f803f80));
    if constexpr (Tiles == 1) {
      const __m512i pairs = bitsOf(_mm512_cvtne2ps_pbh(_mm512_setzero_ps(), weight[0]));
      total = _mm512_dpbf16_ps(total, pairsOf(pairs), ones);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), _mm512_castsi512_si256(pairs));
    } else {
#pragma GCC unroll 16
      for (int t = 0; t < Tiles; t += 2) {
        const __m512bh pairs = _mm512_cvtne2ps_pbh(weight[t + 1], weight[t]);
        total = _mm512_dpbf16_ps(total, pairs, ones);
        _mm512_storeu_si512(words + t * kTile / 2, bitsOf(pairs));
      }
    }
    _mm512_storeu_ps(weights + row * kTile, total);
    return 1;
  }

  // The values' scales go into the weights, and the largest product becomes 32,767.
  template <int Tiles>
  inline __attribute__((always_inline)) float storeScaled(int row, __m512* weight, uint32_t* words) {
    __m512 total = _mm512_loadu_ps(weights + row * kTile), most = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      total = _mm512_add_ps(total, weight[t]);
      weight[t] = _mm512_mul_ps(weight[t], _mm512_load_ps(valueScales + t * kTile));
      most = _mm512_max_ps(most, weight[t]);
    }
    _mm512_storeu_ps(weights + row * kTile, total);
    const float largest = _mm512_reduce_max_ps(most);
    const __m512 inverse = _mm512_set1_ps(largest > 0x1p-100f ? 32767.0f / largest : 0.0f);
#pragma GCC unroll 16
    for (int t = 0; t < Tiles; t++) {
      const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(weight[t], inverse));
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + t * kTile / 2), _mm512_cvtepi32_epi16(whole));
    }
    return largest * (1 / 32767.0f);
  }

  void finish() {
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
};

}  // namespace
}  // namespace pocket
