// Numbers as bf16 words for attention/kernels/amx_kernel.h: pairs side by side, low half first. What does not fit into one bf16 is a
// sum of two: a number of an f16 page always is, exactly (11 bits are 8 and 3), a query nearly (16 bits of 24). Needs
// AVX-512 with bf16; unnamed for the reason given in attention/kernels/kernel.h.
#pragma once

#include "attention/kernels/dot2_tiles.h"

namespace pocket {
namespace {

// The upper halves of `low` and of `high` side by side: exact where the numbers are bf16s, else cut off.
inline __m512i joined(__m512 low, __m512 high) {
  const __m512i lower = _mm512_srli_epi32(_mm512_castps_si512(low), 16);
  return _mm512_mask_mov_epi16(_mm512_castps_si512(high), 0x55555555u, lower);
}

// What cutting off leaves behind. Of an infinity that is not a number.
inline __m512 remainderOf(__m512 x) {
  const __m512i upper = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  return _mm512_sub_ps(x, _mm512_castsi512_ps(upper));
}

// headDim (a multiple of 32) floats in their order, rounded; `rest`, unless null, gets what rounding took, rounded.
inline void termsOfQuery(const float* from, int headDim, uint32_t* to, uint32_t* rest) {
  for (int d = 0; d < headDim; d += 2 * kTile, to += kTile) {
    const __m512 first = _mm512_loadu_ps(from + d), second = _mm512_loadu_ps(from + d + kTile);
    const __m512i pairs = bitsOf(_mm512_cvtne2ps_pbh(second, first));
    _mm512_storeu_si512(to, pairs);
    if (rest == nullptr) continue;
    const __m512i low = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(pairs)), 16);
    const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pairs, 1)), 16);
    _mm512_storeu_si512(rest, bitsOf(_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, _mm512_castsi512_ps(high)),
                                                         _mm512_sub_ps(first, _mm512_castsi512_ps(low)))));
    rest += kTile;
  }
}

// A tile of f16 keys as the sum of two tiles.
inline void termsOfHalfs(const uint16_t* halfs, int headDim, uint32_t* to, uint32_t* rest) {
  for (int d = 0; d < headDim; d += 2, halfs += 2 * kTile, to += kTile, rest += kTile) {
    const __m512 even = Vector16::halfs(halfs), odd = Vector16::halfs(halfs + kTile);
    _mm512_storeu_si512(to, joined(even, odd));
    _mm512_storeu_si512(rest, joined(remainderOf(even), remainderOf(odd)));
  }
}

// A tile of bf16 values; cells outside [begin, end) become zero, because zero times NaN is not.
inline void cellsOfPairs(const uint32_t* pairs, int begin, int end, int headDim, uint32_t* to) {
  for (int j = 0; j < kTile; j += 2, pairs += headDim, to += headDim) {
    const __mmask32 even = begin <= j && j < end ? 0x55555555u : 0u, odd = begin <= j + 1 && j + 1 < end ? 0xaaaaaaaau : 0u;
    for (int d = 0; d < headDim; d += kTile)
      _mm512_storeu_si512(to + d, _mm512_maskz_loadu_epi16(even | odd, pairs + d));
  }
}

// Bytes in pairs, as they lie.
inline void pairsOfBytes(const int8_t* bytes, int words, uint32_t* to) {
  for (int i = 0; i < words; i += kTile)
    _mm512_storeu_si512(to + i, joined(Vector16::lowBytes(bytes + 2 * i), Vector16::highBytes(bytes + 2 * i)));
}

}  // namespace
}  // namespace pocket
