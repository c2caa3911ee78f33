// The attention kernel for many query rows with AMX tiles (16 rows of 64 bytes; TDPBF16PS adds 32 bf16 products to each
// of 16 x 16 sums). Used for prefill. Batch-invariant rows, f32 pages, and heads that are not a multiple of 32 use
// attention/kernels/dot2.h, whose structure this follows: blocks of four tiles of equal delta, a reference per row
// instead of a maximum, the sum of the rounded weights. Per band of 16 rows:
//
//   scores   16 rows x 64 cells     tiles 0 .. 3  +=  queries (4, 5) x keys (6, 7)         32 dimensions per product
//   weights  2^(score - reference)  AVX-512, one row at a time; bf16
//   sums     16 rows x 64 columns   tiles 0 .. 3  +=  weights (4, 5) x values (6, 7)       32 cells per product
//
// The scores of the next band are issued before the weights of the current band, so that the tile unit and the vector
// unit overlap. No two consecutive products add to the same tile.
//
//   pages   scores                                                               values
//   bf16    query x key                                                          bf16 weights x bf16
//   f16     query x key + residual of query x key + query x residual of key      same, values rounded to bf16
//   int8    (query x key + residual of query x key) * scale                      bf16 (weights * scale) x int8
//
// The product of two residuals, less than 2^-15 of the main product, is omitted. `Tiles` is AMX (cpu/amx_tiles.h) or an
// emulation (tests); it provides what linear/kernels/amx_kernel.h lists, and dotBf16<sums, a, b>(). In an unnamed
// namespace; attention/kernels/kernel.h gives the reason.
#pragma once

#include <cfloat>
#include <type_traits>

#include "attention/kernels/dot2_micro.h"
#include "cpu/tile_configuration.h"

namespace pocket {
namespace {

// ---- numbers as bf16 words, low half first. A number that does not fit one bf16 is split into bf16 + residual: ----
// ---- exactly for f16 (11 bits = 8 + 3), nearly for a query (16 of 24 bits) ----

// The upper halves of `low` and `high`, interleaved: exact for bf16 values, otherwise truncated.
inline __m512i packUpper16(__m512 low, __m512 high) {
  const __m512i lower = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
  return _mm512_mask_mov_epi16(_mm512_castps_si512(high), 0x55555555u, lower);
}

// The residual of truncation. NaN for infinity.
inline __m512 residualOf(__m512 x) {
  const __m512i upper = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  return _mm512_sub_ps(x, _mm512_castsi512_ps(upper));
}

// Rounds headDim (a multiple of 32) floats to bf16, in order; writes the rounded residual unless `residual` is null.
inline void splitQuery(const float* from, int headDim, uint32_t* to, uint32_t* residual) {
  for (int d = 0; d < headDim; d += 2 * kTile, to += kTile) {
    const __m512 first = _mm512_loadu_ps(from + d), second = _mm512_loadu_ps(from + d + kTile);
    const __m512i pairs = asBits(_mm512_cvtne2ps_pbh(second, first));
    _mm512_storeu_si512(to, pairs);
    if (residual == nullptr) continue;
    const __m512i low = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(pairs)), 16);
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pairs, 1)), 16);
    _mm512_storeu_si512(residual, asBits(_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, _mm512_castsi512_ps(high)),
                                                             _mm512_sub_ps(first, _mm512_castsi512_ps(low)))));
    residual += kTile;
  }
}

// Splits a tile of f16 keys into bf16 and residual tiles.
inline void splitF16Keys(const uint16_t* f16, int headDim, uint32_t* to, uint32_t* residual) {
  for (int d = 0; d < headDim; d += 2, f16 += 2 * kTile, to += kTile, residual += kTile) {
    const __m512 even = Vector16::loadF16(f16), odd = Vector16::loadF16(f16 + kTile);
    _mm512_storeu_si512(to, packUpper16(even, odd));
    _mm512_storeu_si512(residual, packUpper16(residualOf(even), residualOf(odd)));
  }
}

// Copies a tile of bf16 values; cells outside [begin, end) become zero, because 0 * NaN is NaN.
inline void maskBf16Tile(const uint32_t* pairs, int begin, int end, int headDim, uint32_t* to) {
  for (int j = 0; j < kTile; j += 2, pairs += headDim, to += headDim) {
    const __mmask32 even = begin <= j && j < end ? 0x55555555u : 0u;
    const __mmask32 odd = begin <= j + 1 && j + 1 < end ? 0xaaaaaaaau : 0u;
    for (int d = 0; d < headDim; d += kTile)
      _mm512_storeu_si512(to + d, _mm512_maskz_loadu_epi16(even | odd, pairs + d));
  }
}

// Converts int8 to bf16, in order.
inline void bf16OfInt8(const int8_t* bytes, int words, uint32_t* to) {
  for (int i = 0; i < words; i += kTile)
    _mm512_storeu_si512(to + i, packUpper16(Vector16::lowBytes(bytes + 2 * i), Vector16::highBytes(bytes + 2 * i)));
}

// ---- tile products ----

constexpr int kBand = 16;  // query rows in a register
constexpr int kBlock = 4;  // tiles of cells in a block
constexpr int kBlockCells = kBlock * kTile;

// All eight tiles have 16 rows of 64 bytes.
constexpr TileConfiguration kFullTiles = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// Calls use(0) … use(Count - 1) with constants, because tile numbers must be compile-time constants.
template <int Count, class Use>
[[gnu::always_inline]] inline void unrolled(const Use& use) {
  if constexpr (Count > 1) unrolled<Count - 1>(use);
  use(std::integral_constant<int, Count - 1>());
}

// Operands of scoreBand: queries of a band and their residuals, (16, steps) words; keys of the tiles of the block,
// (steps, 16) words each; offset in words from a key tile to its residual. Without residuals: null and 0.
struct ScoreOperands {
  const uint32_t* q = nullptr;
  const uint32_t* qResidual = nullptr;
  const void* const* keys = nullptr;
  int64_t keyResidual = 0;
  int steps = 0;
};

// Adds the products of 32 dimensions, from word `step` of the keys on.
template <class Tiles, int Width, int Query>
[[gnu::always_inline]] inline void addScores(const void* const* keys, int64_t step) {
  unrolled<Width>([&](auto t) {
    Tiles::template load<6 + t() % 2>(static_cast<const uint32_t*>(keys[t()]) + step, 4 * kTile);
    Tiles::template dotBf16<t(), Query, 6 + t() % 2>();
  });
}

// Writes columns [0, 16 * Width) of scores (16, 64).
template <class Tiles, int Width, bool QueryResidual, bool KeyResidual>
void scoreBand(const ScoreOperands& operands, float* scores) {
  unrolled<Width>([](auto t) { Tiles::template zero<t()>(); });
  for (int s = 0; s < operands.steps; s += kTile) {
    Tiles::template load<4>(operands.q + s, int64_t{4} * operands.steps);
    if constexpr (QueryResidual) Tiles::template load<5>(operands.qResidual + s, int64_t{4} * operands.steps);
    addScores<Tiles, Width, 4>(operands.keys, int64_t{s} * kTile);
    if constexpr (QueryResidual) addScores<Tiles, Width, 5>(operands.keys, int64_t{s} * kTile);
    if constexpr (KeyResidual) addScores<Tiles, Width, 4>(operands.keys, operands.keyResidual + int64_t{s} * kTile);
  }
  unrolled<Width>([&](auto t) { Tiles::template store<t()>(scores + t() * kTile, sizeof(float) * kBlockCells); });
}

// sums (16, headDim), columns [column, column + 16 * Columns), += weights (16, 32 words) x values, (16, headDim) words
// per two tiles.
template <class Tiles, int Width, int Columns>
void addValuesBand(const uint32_t* weights, const void* const* valueOperands, int headDim, int column, float* sums) {
  const int64_t stride = int64_t{4} * headDim;
  unrolled<Columns>([&](auto c) { Tiles::template load<c()>(sums + column + c() * kTile, stride); });
  unrolled<Width / 2>([&](auto p) {
    Tiles::template load<4 + p()>(weights + p() * kTile, 4 * kBlockCells / 2);
    const uint32_t* from = static_cast<const uint32_t*>(valueOperands[p()]) + column;
    unrolled<Columns>([&](auto c) {
      Tiles::template load<6 + c() % 2>(from + c() * kTile, stride);
      Tiles::template dotBf16<c(), 4 + p(), 6 + c() % 2>();
    });
  });
  unrolled<Columns>([&](auto c) { Tiles::template store<c()>(sums + column + c() * kTile, stride); });
}

// ---- the kernel ----

// In floats: queries and residuals, sums, keys and residuals, values, two bands of scores and one of weights, and per
// row its sum of weights and its reference.
constexpr int64_t tileScratchFloats(int64_t rows, int64_t headDim) {
  const int64_t banded = rows + kBand - 1;
  return 2 * banded * headDim + (kBlockCells + kBlockCells / 2) * headDim + 2 * kBand * kBlockCells +
         kBand * kBlockCells / 2 + banded * (kTile + 1);
}
// The smallest job is the tightest: both sides grow by 2 * rows * headDim plus terms that are larger in scratchFloats.
static_assert(tileScratchFloats(1, 32) <= scratchFloats(1, 32));

// `Type` is the type of the pages, any but kF32.
template <KvType Type, class Tiles>
struct AttendAmx {
  static constexpr bool kBytes = Type == KvType::kInt8;
  static constexpr bool kQueryResidual = Type != KvType::kBf16, kKeyResidual = Type == KvType::kF16;

  const AttendJob& job;
  int rows, bands, steps;
  uint32_t* q;  // (bands * 16, headDim / 2), rotated for the current delta, scaled
  uint32_t* qResidual;  // the same
  float* sums;  // (bands * 16, headDim)
  float* weights;  // (bands * 16, 16), lanes of the sums of weights
  float* references;  // (rows)
  float* scores;  // (2 bands, 16, 64)
  uint32_t* words;  // (16, 32), weights of a band
  // The current block.
  uint32_t* keys;  // (4, headDim / 2, 16)
  uint32_t* keyResiduals;
  uint32_t* values;  // (4 * 8, headDim)
  const void* keyTiles[kBlock];
  const void* valueOperands[kBlock / 2];  // two consecutive tiles each
  alignas(64) float keyScales[kBlockCells];
  alignas(64) float valueScales[kBlockCells];
  const Segment* segments;
  int tileCount;

  explicit AttendAmx(const AttendJob& work)
      : job(work), rows(work.tokenCount * work.group), bands((rows + kBand - 1) / kBand), steps(work.headDim / 2) {
    float* next = work.scratch;
    const auto take = [&next](int64_t floats) {
      float* part = next;
      next += floats;
      return part;
    };
    const auto takeWords = [&take](int64_t count) { return reinterpret_cast<uint32_t*>(take(count)); };
    const int64_t all = int64_t{bands} * kBand;
    q = takeWords(all * steps);
    qResidual = takeWords(all * steps);
    sums = take(all * job.headDim);
    weights = take(all * kTile);
    references = take(all);
    scores = take(2 * kBand * kBlockCells);
    words = takeWords(kBand * kBlockCells / 2);
    keys = takeWords(int64_t{kBlockCells} * steps);
    keyResiduals = takeWords(int64_t{kBlockCells} * steps);
    values = takeWords(int64_t{kBlockCells} * steps);
  }

  void run() {
    const int64_t all = int64_t{bands} * kBand;
    std::memset(q, 0, sizeof(uint32_t) * 2 * all * steps);  // including the padding rows of the last band
    std::memset(sums, 0, sizeof(float) * all * job.headDim);
    std::memset(weights, 0, sizeof(float) * all * kTile);
    std::memset(words, 0, sizeof(uint32_t) * kBand * kBlockCells / 2);
    // Not minus infinity: the difference of two references must not be NaN.
    for (int r = 0; r < rows; r++) references[r] = -FLT_MAX;
    Tiles::enter(kFullTiles);
    forEachBlock(
        job, kBlock, [this](int token, int delta) { rotate(token, delta); },
        [this](int token, int start, int end) {
          segments = job.segments + start;
          tileCount = end - start;
          block(token * job.group);
        });
    Tiles::leave();
    writeRows(job, rows, sums, weights, references);
  }

  void rotate(int token, int delta) {
    float* rotated = scores;  // free between blocks
    rotateQueries(job, token, delta, rotated, [&](int row) {
      const int64_t at = static_cast<int64_t>(row) * steps;
      splitQuery(rotated, job.headDim, q + at, kQueryResidual ? qResidual + at : nullptr);
    });
  }

  // Rows [row, rows) against the tiles of the block.
  void block(int row) {
    for (int t = 0; t < tileCount; t++) readTile(t);
    const int width = tileCount <= 2 ? 2 : kBlock;
    for (int t = tileCount; t < width; t++) {  // padding: masked for every row
      keyTiles[t] = keyTiles[0];
      std::memset(valuesAt(t), 0, sizeof(uint32_t) * kTile * steps);
      for (int l = 0; l < kTile; l++) keyScales[t * kTile + l] = valueScales[t * kTile + l] = 0;
    }
    for (int p = 0; p < width / 2; p++) valueOperands[p] = valueOperand(2 * p);
    const Segment& final = segments[tileCount - 1];
    const int lastCell = final.index + (final.end - final.begin) - 1;
    const bool whole = width == tileCount && lastCell - segments[0].index + 1 == tileCount * kTile;
    if (width == 2) attendBands<2>(row, whole, lastCell);
    else attendBands<kBlock>(row, whole, lastCell);
  }

  uint32_t* valuesAt(int t) const { return values + static_cast<int64_t>(t) * kTile * steps; }

  // True if the values can be multiplied directly from the pages: bf16, and two whole tiles in consecutive slots.
  bool inPlace(int t) const {
    if (Type != KvType::kBf16 || t + 1 >= tileCount || segments[t + 1].tile != segments[t].tile + 1) return false;
    return segments[t].end - segments[t].begin == kTile && segments[t + 1].end - segments[t + 1].begin == kTile;
  }
  const void* valueOperand(int t) const {
    if (!inPlace(t)) return valuesAt(t);
    return static_cast<const uint32_t*>(job.values) + segments[t].tile * kTile * steps;
  }

  void readTile(int t) {
    const Segment& segment = segments[t];
    const int64_t first = segment.tile * kTile * job.headDim;
    uint32_t* key = keys + static_cast<int64_t>(t) * kTile * steps;
    keyTiles[t] = key;
    if constexpr (Type == KvType::kF16) {
      splitF16Keys(static_cast<const uint16_t*>(job.keys) + first, job.headDim, key, key + (keyResiduals - keys));
      bf16ValuesOfF16(static_cast<const uint16_t*>(job.values) + first, segment.begin, segment.end, job.headDim,
                      valuesAt(t));
    } else if constexpr (kBytes) {
      bf16OfInt8(static_cast<const int8_t*>(job.keys) + first, kTile * steps, key);
      bf16OfInt8(static_cast<const int8_t*>(job.values) + first, kTile * steps, valuesAt(t));
      std::memcpy(keyScales + t * kTile, job.keyScales + segment.tile * kTile, sizeof(float) * kTile);
      const __mmask16 cells = static_cast<__mmask16>((1u << segment.end) - (1u << segment.begin));
      _mm512_store_ps(valueScales + t * kTile, _mm512_maskz_loadu_ps(cells, job.valueScales + segment.tile * kTile));
    } else {
      keyTiles[t] = static_cast<const uint32_t*>(job.keys) + first / 2;
      if (!inPlace(t / 2 * 2))
        maskBf16Tile(static_cast<const uint32_t*>(job.values) + first / 2, segment.begin, segment.end, job.headDim,
                     valuesAt(t));
    }
  }

  template <int Width>
  void attendBands(int row, bool whole, int lastCell) {
    score<Width>(row / kBand);
    for (int band = row / kBand; band < bands; band++) {
      if (band + 1 < bands) score<Width>(band + 1);
      const int end = band * kBand + kBand < rows ? band * kBand + kBand : rows;
      for (int r = band * kBand; r < end; r++) {
        uint32_t* to = words + r % kBand * (kBlockCells / 2);
        if (r < row) std::memset(to, 0, sizeof(uint32_t) * kBlockCells / 2);  // keeps its sums
        else weigh<Width>(r, whole && job.tokens[r / job.group].index >= lastCell, scoresOf(r), to);
      }
      float* to = sums + int64_t{band} * kBand * job.headDim;
      int column = 0;
      for (; column + 4 * kTile <= job.headDim; column += 4 * kTile)
        addValuesBand<Tiles, Width, 4>(words, valueOperands, job.headDim, column, to);
      if (column < job.headDim) addValuesBand<Tiles, Width, 2>(words, valueOperands, job.headDim, column, to);
    }
  }

  float* scoresOf(int row) const { return scores + row % (2 * kBand) * kBlockCells; }

  template <int Width>
  void score(int band) const {
    const int64_t at = int64_t{band} * kBand * steps;
    scoreBand<Tiles, Width, kQueryResidual, kKeyResidual>(
        {q + at, qResidual + at, keyTiles, keyResiduals - keys, steps}, scoresOf(band * kBand));
  }

  // Replaces the scores of a row by weights, (Width * 8) words.
  template <int Width>
  void weigh(int row, bool unmasked, const float* from, uint32_t* to) {
    __m512 score[Width];
#pragma GCC unroll 16
    for (int t = 0; t < Width; t++) {
      score[t] = _mm512_load_ps(from + t * kTile);
      if constexpr (kBytes) score[t] = _mm512_mul_ps(score[t], _mm512_load_ps(keyScales + t * kTile));
      if (unmasked) continue;
      const uint32_t visible = t < tileCount ? visibleLanes(segments[t], job.tokens[row / job.group].index) : 0;
      score[t] = Vector16::select(visible, score[t], _mm512_set1_ps(-INFINITY));
    }
    __m512 maxima = score[0];
    for (int t = 1; t < Width; t++) maxima = _mm512_max_ps(maxima, score[t]);
    const __m512 limit = _mm512_set1_ps(references[row] + kSlack);
    if (__builtin_expect(_mm512_cmp_ps_mask(maxima, limit, _CMP_GT_OQ) != 0, 0))
      raiseReference(maxima, job.headDim, sums + int64_t{row} * job.headDim, weights + row * kTile, references[row]);
    const __m512 reference = _mm512_set1_ps(references[row]);
    __m512 total = _mm512_load_ps(weights + row * kTile);
#pragma GCC unroll 16
    for (int t = 0; t < Width; t += 2) {
      __m512 low = powerOfTwo(_mm512_sub_ps(score[t], reference));
      __m512 high = powerOfTwo(_mm512_sub_ps(score[t + 1], reference));
      if constexpr (kBytes) {
        total = _mm512_add_ps(total, _mm512_add_ps(low, high));
        low = _mm512_mul_ps(low, _mm512_load_ps(valueScales + t * kTile));
        high = _mm512_mul_ps(high, _mm512_load_ps(valueScales + (t + 1) * kTile));
      }
      const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
      if constexpr (!kBytes) total = _mm512_dpbf16_ps(total, pairs, asBf16(_mm512_set1_epi32(0x3f803f80)));
      _mm512_store_si512(to + t * kTile / 2, asBits(pairs));
    }
    _mm512_store_ps(weights + row * kTile, total);
  }
};

template <class Tiles>
void attendWithTiles(const AttendJob& job) {
  if (job.batchInvariant || job.headDim % 32 != 0) return attendAvx512Bf16(job);
  switch (job.type) {
    case KvType::kF32: return attendAvx512Bf16(job);
    case KvType::kF16: return AttendAmx<KvType::kF16, Tiles>(job).run();
    case KvType::kBf16: return AttendAmx<KvType::kBf16, Tiles>(job).run();
    case KvType::kInt8: return AttendAmx<KvType::kInt8, Tiles>(job).run();
  }
}

}  // namespace
}  // namespace pocket
