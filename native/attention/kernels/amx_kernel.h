// The attention kernel for many query rows over registers of 16 rows of 64 bytes whose product is one instruction, as
// Intel's AMX has them: 16 x 16 sums of 32 products of bf16. It is for chunks of prompts: rows that must get the bits
// they get alone, f32 pages and heads that are no multiple of 32 are the pair kernel's (attention/kernels/dot2.h), which this
// resembles: blocks of four tiles of equal delta, a reference per
// row instead of a maximum, the sum of the weights as rounded. Rows are taken in bands of 16:
//
//   scores   16 rows x 64 cells     registers 0 .. 3  +=  queries (4, 5) x keys (6, 7)          32 dimensions a product
//   weights  2^(score - reference)  vectors, a row at a time; bf16
//   sums     16 rows x 64 columns   registers 0 .. 3  +=  weights (4, 5) x values (6, 7)        32 cells a product
//
// The scores of the next band are asked for before the weights of this one are made, so that the two units need not
// wait for one another. No two neighbouring products add to the same register.
//
//   pages   scores                                               values
//   bf16    query x key                                          bf16 weights x bf16
//   f16     query x key, rest of query x key, query x rest of key   the same, values rounded to bf16
//   int8    (query x key, rest of query x key), times a scale    weights times a scale in bf16 x bytes
//
// What is a rest is said in attention/kernels/amx_terms.h; the product of two rests, less than 2^-15 of the product that it
// belongs to, is left out. Tiles are AMX's (cpu/amx_tiles.h) or emulated; what is done with them is in attention/kernels/amx_micro.h.
#pragma once

#include <cfloat>

#include "attention/kernels/dot2_micro.h"
#include "attention/kernels/row_sums.h"
#include "attention/kernels/amx_micro.h"
#include "attention/kernels/amx_terms.h"
#include "attention/kernels/walk.h"

namespace pocket {
namespace {

// In floats: queries and rests, sums, keys and rests, values, two bands of scores and one of weights, and per row its sum
// of weights and its reference.
constexpr int64_t tileScratchFloats(int64_t rows, int64_t headDim) {
  const int64_t banded = rows + kBand - 1;
  return 2 * banded * headDim + (kBlockCells + kBlockCells / 2) * headDim + 2 * kBand * kBlockCells +
         kBand * kBlockCells / 2 + banded * (kTile + 1);
}
// Both are 2 * rows * headDim and a sum of multiples, of which the job's are the larger, so that the smallest job decides.
static_assert(tileScratchFloats(1, 32) <= scratchFloats(1, 32));

// `Type` is that of the pages, any but kF32.
template <KvType Type, class Tiles>
struct AttendTiles {
  static constexpr bool kBytes = Type == KvType::kInt8;
  static constexpr bool kQueryRest = Type != KvType::kBf16, kKeyRest = Type == KvType::kF16;

  const AttendJob& job;
  int rows, bands, steps;
  uint32_t* q;      // (bands * 16, headDim / 2), rotated for the delta at hand, scaled
  uint32_t* qRest;  // the same
  float* sums;      // (bands * 16, headDim)
  float* weights;   // (bands * 16, 16), lanes of the sums of weights
  float* references;  // (rows)
  float* scores;    // (2 bands, 16, 64)
  uint32_t* words;  // (16, 32), weights of a band
  // Of the block at hand.
  uint32_t* keys;     // (4, headDim / 2, 16)
  uint32_t* keyRests;
  uint32_t* values;   // (4 * 8, headDim)
  const void* keyTiles[kBlock];
  const void* valuePairs[kBlock / 2];  // of two tiles, one behind the other
  alignas(64) float keyScales[kBlockCells];
  alignas(64) float valueScales[kBlockCells];
  const Segment* segments;
  int tileCount;

  explicit AttendTiles(const AttendJob& work)
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
    qRest = takeWords(all * steps);
    sums = take(all * job.headDim);
    weights = take(all * kTile);
    references = take(all);
    scores = take(2 * kBand * kBlockCells);
    words = takeWords(kBand * kBlockCells / 2);
    keys = takeWords(int64_t{kBlockCells} * steps);
    keyRests = takeWords(int64_t{kBlockCells} * steps);
    values = takeWords(int64_t{kBlockCells} * steps);
  }

  void run() {
    const int64_t all = int64_t{bands} * kBand;
    std::memset(q, 0, sizeof(uint32_t) * 2 * all * steps);  // also of the rows that no query fills
    std::memset(sums, 0, sizeof(float) * all * job.headDim);
    std::memset(weights, 0, sizeof(float) * all * kTile);
    std::memset(words, 0, sizeof(uint32_t) * kBand * kBlockCells / 2);
    // And not minus infinity: a difference of two of these must be a number.
    for (int r = 0; r < rows; r++) references[r] = -FLT_MAX;
    Tiles::enter(kWholeTiles);
    walk(job, kBlock, [this](int token, int delta) { rotate(token, delta); },
         [this](int token, int start, int end) {
           segments = job.segments + start;
           tileCount = end - start;
           block(token * job.group);
         });
    Tiles::leave();
    giveRows(job, rows, sums, weights, references);
  }

  void rotate(int token, int delta) {
    float* turned = scores;  // free between blocks
    turnQueries(job, token, delta, turned, [&](int row) {
      const int64_t at = static_cast<int64_t>(row) * steps;
      termsOfQuery(turned, job.headDim, q + at, kQueryRest ? qRest + at : nullptr);
    });
  }

  // Rows [row, rows) over the tiles of the block.
  void block(int row) {
    for (int t = 0; t < tileCount; t++) readTile(t);
    const int width = tileCount <= 2 ? 2 : kBlock;
    for (int t = tileCount; t < width; t++) {  // of these nobody sees a cell
      keyTiles[t] = keyTiles[0];
      std::memset(valuesAt(t), 0, sizeof(uint32_t) * kTile * steps);
      for (int l = 0; l < kTile; l++) keyScales[t * kTile + l] = valueScales[t * kTile + l] = 0;
    }
    for (int p = 0; p < width / 2; p++) valuePairs[p] = valuesOfPair(2 * p);
    const Segment& final = segments[tileCount - 1];
    const int lastCell = final.index + (final.end - final.begin) - 1;
    const bool whole = width == tileCount && lastCell - segments[0].index + 1 == tileCount * kTile;
    if (width == 2) bandsFrom<2>(row, whole, lastCell);
    else bandsFrom<kBlock>(row, whole, lastCell);
  }

  uint32_t* valuesAt(int t) const { return values + static_cast<int64_t>(t) * kTile * steps; }

  // Where the values lie in pages as a product wants them: two whole tiles of pairs, one behind the other.
  bool inPlace(int t) const {
    if (Type != KvType::kBf16 || t + 1 >= tileCount || segments[t + 1].tile != segments[t].tile + 1) return false;
    return segments[t].end - segments[t].begin == kTile && segments[t + 1].end - segments[t + 1].begin == kTile;
  }
  const void* valuesOfPair(int t) const {
    if (!inPlace(t)) return valuesAt(t);
    return static_cast<const uint32_t*>(job.values) + segments[t].tile * kTile * steps;
  }

  void readTile(int t) {
    const Segment& segment = segments[t];
    const int64_t first = segment.tile * kTile * job.headDim;
    uint32_t* key = keys + static_cast<int64_t>(t) * kTile * steps;
    keyTiles[t] = key;
    if constexpr (Type == KvType::kF16) {
      termsOfHalfs(static_cast<const uint16_t*>(job.keys) + first, job.headDim, key, key + (keyRests - keys));
      valuesOfHalfs(static_cast<const uint16_t*>(job.values) + first, segment.begin, segment.end, job.headDim,
                    valuesAt(t));
    } else if constexpr (kBytes) {
      pairsOfBytes(static_cast<const int8_t*>(job.keys) + first, kTile * steps, key);
      pairsOfBytes(static_cast<const int8_t*>(job.values) + first, kTile * steps, valuesAt(t));
      std::memcpy(keyScales + t * kTile, job.keyScales + segment.tile * kTile, sizeof(float) * kTile);
      const __mmask16 cells = static_cast<__mmask16>((1u << segment.end) - (1u << segment.begin));
      _mm512_store_ps(valueScales + t * kTile, _mm512_maskz_loadu_ps(cells, job.valueScales + segment.tile * kTile));
    } else {
      keyTiles[t] = static_cast<const uint32_t*>(job.keys) + first / 2;
      if (!inPlace(t / 2 * 2))
        cellsOfPairs(static_cast<const uint32_t*>(job.values) + first / 2, segment.begin, segment.end, job.headDim,
                     valuesAt(t));
    }
  }

  template <int Width>
  void bandsFrom(int row, bool whole, int lastCell) {
    score<Width>(row / kBand);
    for (int band = row / kBand; band < bands; band++) {
      if (band + 1 < bands) score<Width>(band + 1);
      const int end = band * kBand + kBand < rows ? band * kBand + kBand : rows;
      for (int r = band * kBand; r < end; r++) {
        uint32_t* to = words + r % kBand * (kBlockCells / 2);
        if (r < row) std::memset(to, 0, sizeof(uint32_t) * kBlockCells / 2);  // its sums stay
        else weigh<Width>(r, whole && job.tokens[r / job.group].index >= lastCell, scoresOf(r), to);
      }
      float* to = sums + int64_t{band} * kBand * job.headDim;
      int column = 0;
      for (; column + 4 * kTile <= job.headDim; column += 4 * kTile)
        addBand<Tiles, Width, 4>(words, valuePairs, job.headDim, column, to);
      if (column < job.headDim) addBand<Tiles, Width, 2>(words, valuePairs, job.headDim, column, to);
    }
  }

  float* scoresOf(int row) const { return scores + row % (2 * kBand) * kBlockCells; }

  template <int Width>
  void score(int band) const {
    const int64_t at = int64_t{band} * kBand * steps;
    scoreBand<Tiles, Width, kQueryRest, kKeyRest>({q + at, qRest + at, keyTiles, keyRests - keys, steps},
                                                  scoresOf(band * kBand));
  }

  // Turns the scores of a row into weights, (Width * 8) words.
  template <int Width>
  void weigh(int row, bool open, const float* from, uint32_t* to) {
    __m512 score[Width];
#pragma GCC unroll 16
    for (int t = 0; t < Width; t++) {
      score[t] = _mm512_load_ps(from + t * kTile);
      if constexpr (kBytes) score[t] = _mm512_mul_ps(score[t], _mm512_load_ps(keyScales + t * kTile));
      if (open) continue;
      const uint32_t visible = t < tileCount ? visibleLanes(segments[t], job.tokens[row / job.group].index) : 0;
      score[t] = Vector16::select(visible, score[t], _mm512_set1_ps(-INFINITY));
    }
    __m512 most = score[0];
    for (int t = 1; t < Width; t++) most = _mm512_max_ps(most, score[t]);
    const __m512 limit = _mm512_set1_ps(references[row] + kSlack);
    if (__builtin_expect(_mm512_cmp_ps_mask(most, limit, _CMP_GT_OQ) != 0, 0))
      raiseReference(most, job.headDim, sums + int64_t{row} * job.headDim, weights + row * kTile, references[row]);
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
      if constexpr (!kBytes) total = _mm512_dpbf16_ps(total, pairs, pairsOf(_mm512_set1_epi32(0x3f803f80)));
      _mm512_store_si512(to + t * kTile / 2, bitsOf(pairs));
    }
    _mm512_store_ps(weights + row * kTile, total);
  }
};

template <class Tiles>
void attendInTiles(const AttendJob& job) {
  if (job.batchInvariant || job.headDim % 32 != 0) return attendAvx512Bf16(job);
  switch (job.type) {
    case KvType::kF32: return attendAvx512Bf16(job);
    case KvType::kF16: return AttendTiles<KvType::kF16, Tiles>(job).run();
    case KvType::kBf16: return AttendTiles<KvType::kBf16, Tiles>(job).run();
    case KvType::kInt8: return AttendTiles<KvType::kInt8, Tiles>(job).run();
  }
}

}  // namespace
}  // namespace pocket
