// Tiles of 16 cells in the layout of 16-bit dot products (VNNI layout): words of two 16-bit numbers, one row of 16
// words per two dimensions of the keys, one row of headDim words per two cells of the values. With many rows a tile is
// converted once per job and block; with few rows the Cells classes convert in registers. Needs AVX-512 with BF16. In
// an unnamed namespace; attention/kernels/kernel.h gives the reason.
#pragma once

#include "attention/kernels/vector16.h"

namespace pocket {
namespace {

inline __m512i asBits(__m512bh pairs) {
  __m512i bits;
  std::memcpy(&bits, &pairs, sizeof bits);
  return bits;
}

inline __m512bh asBf16(__m512i bits) {
  __m512bh pairs;
  std::memcpy(&pairs, &bits, sizeof pairs);
  return pairs;
}

// Elements i of `low` and `high`, rounded to bf16, interleaved.
inline __m512i interleaveBf16(__m512 low, __m512 high) {
  alignas(64) static constexpr int16_t kInterleave[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), asBits(_mm512_cvtne2ps_pbh(high, low)));
}

// The low 16 bits of elements i of `low` and `high`, interleaved.
inline __m512i interleaveLow16(__m512 low, __m512 high) {
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 1, 0, 0, 4, 5, 0, 0, 8, 9, 0, 0, 12, 13));
  return _mm512_mask_shuffle_epi8(_mm512_castps_si512(low), 0xccccccccccccccccu, _mm512_castps_si512(high), bytes);
}

// Prefetches into L2. The hardware prefetcher stops at the end of each tile.
inline void prefetch(const void* line) { _mm_prefetch(static_cast<const char*>(line), _MM_HINT_T1); }

inline void widenBytes(const int8_t* bytes, int words, uint32_t* to) {
  for (int i = 0; i < words; i += kTile)
    _mm512_storeu_si512(to + i,
                        _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 2 * i))));
}

// ---- cells: how the dot products read the words of a tile ----
//
//   kBytes         bytes per word of a tile
//   kValueBytes    bytes between dimensions of a tile's values
//   kPrefetch      tiles are read from memory; prefetch the next
//   kRows, kWide   maximum rows of a group; sums per row in registers if the group has more than three rows
//   key(at)        16 words of two dimensions; the next two dimensions follow after 16 words
//   value(at)      16 words of 16 dimensions of two cells; the next two cells follow after headDim words

// Words that need no conversion: converted before, or bf16 pages.
template <bool Prefetch>
struct WordCells {
  static constexpr bool kPrefetch = Prefetch;
  static constexpr int kBytes = 4, kValueBytes = 4, kRows = Prefetch ? 8 : 6, kWide = Prefetch ? 2 : 4;
  static __m512 rounder(const float*) { return _mm512_setzero_ps(); }
  static __m512i key(const char* at, __m512) { return _mm512_loadu_si512(at); }
  static __m512i value(const char* at, int64_t) { return _mm512_loadu_si512(at); }
};

struct Int8Cells {
  static constexpr bool kPrefetch = true;
  static constexpr int kBytes = 2, kValueBytes = 2, kRows = 6, kWide = 4;
  static __m512 rounder(const float*) { return _mm512_setzero_ps(); }
  static __m512i key(const char* at, __m512) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static __m512i value(const char* at, int64_t) { return key(at, __m512()); }
};

// Converts keys to int16 and values to bf16. A float near the rounder, 1.5 * 2^23 times the scale of the key, holds the
// multiple of the scale in its low 16 bits. This takes an addition, whose unit the products leave idle, and no
// multiplication.
struct F16Cells {
  static constexpr bool kPrefetch = true;
  static constexpr int kBytes = 4, kValueBytes = 2, kRows = 8, kWide = 2;
  static __m512 rounder(const float* scales) {
    return _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_set1_ps(0x1.8p23f));
  }
  static __m512i key(const char* at, __m512 rounder) {
    return interleaveLow16(_mm512_add_ps(floats(at), rounder), _mm512_add_ps(floats(at + 2 * kTile), rounder));
  }
  static __m512i value(const char* at, int64_t headDim) { return interleaveBf16(floats(at), floats(at + 2 * headDim)); }

 private:
  static __m512 floats(const char* at) { return Vector16::loadF16(reinterpret_cast<const uint16_t*>(at)); }
};

inline void int16KeysOfF16(const uint16_t* f16, const float* scales, int headDim, uint32_t* to) {
  const __m512 rounder = F16Cells::rounder(scales);
  for (int d = 0; d < headDim; d += 2, to += kTile)
    _mm512_storeu_si512(to, F16Cells::key(reinterpret_cast<const char*>(f16 + d * kTile), rounder));
}

// Here and below, cells outside [begin, end) become zero: their weights are zero, but 0 * NaN is NaN.
inline void bf16ValuesOfF16(const uint16_t* f16, int begin, int end, int headDim, uint32_t* to) {
  for (int j = 0; j < kTile; j += 2, f16 += 2 * headDim, to += headDim) {
    const bool low = begin <= j && j < end, high = begin <= j + 1 && j + 1 < end;
    for (int d = 0; d < headDim; d += kTile) {
      const __m512 even = low ? Vector16::loadF16(f16 + d) : Vector16::zero();
      const __m512 odd = high ? Vector16::loadF16(f16 + headDim + d) : Vector16::zero();
      _mm512_storeu_si512(to + d, interleaveBf16(even, odd));
    }
  }
}

// Masks only; no conversion.
inline void maskF16Values(const uint16_t* f16, int begin, int end, int headDim, uint16_t* to) {
  std::memset(to, 0, sizeof(uint16_t) * kTile * headDim);
  std::memcpy(to + begin * headDim, f16 + begin * headDim, sizeof(uint16_t) * (end - begin) * headDim);
}

inline void maskBf16Values(const uint16_t* pairs, int begin, int end, int headDim, uint32_t* to) {
  for (int j = 0; j < kTile; j += 2, pairs += 2 * headDim, to += headDim) {
    const uint32_t low = begin <= j && j < end ? 0x0000ffffu : 0u;
    const uint32_t high = begin <= j + 1 && j + 1 < end ? 0xffff0000u : 0u;
    const __m512i kept = _mm512_set1_epi32(static_cast<int>(low | high));
    for (int d = 0; d < headDim; d += kTile)
      _mm512_storeu_si512(to + d, _mm512_and_si512(kept, _mm512_loadu_si512(pairs + 2 * d)));
  }
}

}  // namespace
}  // namespace pocket
