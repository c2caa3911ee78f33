// The linear kernel for x86-64 with AVX2. Compiled with AVX2 flags; call only if cpu/features.h supports Isa::kAvx2.
// vpmaddubsw adds products of bytes in pairs to 16 bits: |x| <= 127, so a pair is at most 2 * 127 * (2^bits - 1), and
// several quads of a group fit before the sums are widened. 8-bit codes are kept signed and their sign is moved to x.
#include <immintrin.h>

#include "linear/kernels/kernel.h"

namespace pocket {
namespace {

struct Avx2Math {
  struct Floats {
    __m256 low, high;
  };
  struct Ints {
    __m256i low, high;
  };
  using Codes = const uint8_t*;
  struct Buffer {
    alignas(32) uint8_t bytes[kGroupCodes];
  };
  static constexpr int kRows = 4;
  static constexpr int kStreamRows = 4;
  static constexpr bool kSigned8 = true;

  static constexpr BlockFormat sameWhenUnpacked(BlockFormat format) { return format; }

  static Floats set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static void store(float* to, Floats x) {
    _mm256_storeu_ps(to, x.low);
    _mm256_storeu_ps(to + 8, x.high);
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Floats mul(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static Floats toFloats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
  static Floats loadF16(const uint8_t* from) {
    return {_mm256_cvtph_ps(sixteen(from)), _mm256_cvtph_ps(sixteen(from + 16))};
  }
  static Floats loadUint8(const uint8_t* from) {
    return toFloats({_mm256_cvtepu8_epi32(eight(from)), _mm256_cvtepu8_epi32(eight(from + 8))});
  }
  static Floats loadInt8(const uint8_t* from) {
    return toFloats({_mm256_cvtepi8_epi32(eight(from)), _mm256_cvtepi8_epi32(eight(from + 8))});
  }

  template <int Bits>
  static Codes unpack(const uint8_t* packed, Buffer& buffer) {
    unpackTo<Bits>(packed, buffer.bytes);
    return buffer.bytes;
  }
  static Codes loadCodes(const uint8_t* from) { return from; }

  template <int Bits>
  [[gnu::always_inline]] static void unpackTo(const uint8_t* packed, uint8_t* to) {
    if constexpr (Bits == 8) {
      for (int i = 0; i < kGroupCodes; i += 32) put(to + i, _mm256_xor_si256(get(packed + i), _mm256_set1_epi8(-128)));
      return;
    }
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i byteOfBit = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2,
                                               3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
    const uint8_t* upper = packed + 256;
    for (int i = 0; i < 256; i += 32) {
      const __m256i pair = get(packed + i);
      __m256i codes[2] = {_mm256_and_si256(pair, low), _mm256_and_si256(_mm256_srli_epi16(pair, 4), low)};
      for (int half = 0; half < 2; half++) {
        const int at = 256 * half + i;
        if constexpr (Bits == 5) {
          const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(wordAt(upper + at / 8)), byteOfBit);
          const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
          codes[half] = _mm256_or_si256(codes[half], _mm256_and_si256(set, _mm256_set1_epi8(16)));
        }
        if constexpr (Bits == 6) {
          const __m256i shift = _mm256_srlv_epi32(get(upper + at % 128), _mm256_set1_epi32(at / 128 * 2));
          const __m256i two = _mm256_and_si256(shift, _mm256_set1_epi8(3));
          codes[half] = _mm256_or_si256(codes[half], _mm256_slli_epi16(two, 4));
        }
        put(to + at, codes[half]);
      }
    }
  }
  template <int Bits>
  static Floats column(const Codes& codes, int k) {
    const __m256i low = get(codes + k / 4 * 64), high = get(codes + k / 4 * 64 + 32);
    if constexpr (Bits == 8) {
      const int up = 24 - k % 4 * 8;
      return toFloats(
          {_mm256_srai_epi32(_mm256_slli_epi32(low, up), 24), _mm256_srai_epi32(_mm256_slli_epi32(high, up), 24)});
    }
    const __m256i byte = _mm256_set1_epi32(255);
    return toFloats({_mm256_and_si256(_mm256_srli_epi32(low, k % 4 * 8), byte),
                     _mm256_and_si256(_mm256_srli_epi32(high, k % 4 * 8), byte)});
  }

  template <int R, int First, int End, int Bits, bool Start>
  [[gnu::always_inline]] static void dots(const Codes& codes, const int8_t* x, [[maybe_unused]] const int32_t* start,
                                          Ints* to) {
    constexpr int kFit = Bits == 4 ? 8 : Bits == 5 ? 4 : Bits == 6 ? 2 : 1;  // quads whose sum fits 16 bits
    const __m256i ones = _mm256_set1_epi16(1);
    for (int r = 0; r < R; r++) {
      const __m256i from = Start ? _mm256_set1_epi32(start[r]) : _mm256_setzero_si256();
      to[r] = {from, from};
    }
#pragma GCC unroll 8
    for (int first = First; first < End; first += kFit) {
      Ints pairs[R];
#pragma GCC unroll 8
      for (int q = first; q < first + kFit; q++) {
        const __m256i low = get(codes + q * 64), high = get(codes + q * 64 + 32);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
          const __m256i four = _mm256_set1_epi32(wordAt(x + r * kGroupColumns + q * 4));
          const __m256i a = pairsOf<Bits>(low, four), b = pairsOf<Bits>(high, four);
          if (q == first) pairs[r] = {a, b};
          else pairs[r] = {_mm256_add_epi16(pairs[r].low, a), _mm256_add_epi16(pairs[r].high, b)};
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        to[r].low = _mm256_add_epi32(to[r].low, _mm256_madd_epi16(pairs[r].low, ones));
        to[r].high = _mm256_add_epi32(to[r].high, _mm256_madd_epi16(pairs[r].high, ones));
      }
    }
  }

 private:
  template <int Bits>
  static __m256i pairsOf(__m256i codes, __m256i four) {
    if constexpr (Bits == 8) return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(four, codes));
    return _mm256_maddubs_epi16(codes, four);
  }
  static __m256i get(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static void put(uint8_t* to, __m256i x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
  static __m128i sixteen(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static __m128i eight(const uint8_t* from) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)); }
};

}  // namespace

const LinearKernel kLinearAvx2 = LinearTable<Avx2Math>::named("avx2");

}  // namespace pocket
