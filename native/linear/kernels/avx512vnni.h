// The Math of the linear kernel for AVX-512 VNNI: 16 lanes. vpdpbusd multiplies 64 pairs: unsigned codes of weights in
// a register, signed codes of x broadcast from memory. Include only in files compiled with those flags. In an unnamed
// namespace; linear/kernels/kernel.h gives the reason.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // gcc 12's own headers, its bug 105593
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "linear/kernels/kernel.h"

namespace pocket {
namespace {

struct VnniMath {
  using Floats = __m512;
  using Ints = __m512i;
  struct Codes {
    __m512i quads[8];
  };
  struct Buffer {};
  static constexpr int kRows = 8;
  static constexpr int kStreamRows = 8;
  static constexpr bool kSigned8 = false;

  static constexpr BlockFormat sameWhenUnpacked(BlockFormat format) {
    if (layoutOf(format).minimum) return BlockFormat::kQ4_1;
    return layoutOf(format).halves ? BlockFormat::kQ6_K : BlockFormat::kQ4_0;
  }

  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static Ints loadInts(const int32_t* from) { return _mm512_loadu_si512(from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats toFloats(Ints x) { return _mm512_cvtepi32_ps(x); }
  static Floats loadF16(const uint8_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Floats loadUint8(const uint8_t* from) { return toFloats(_mm512_cvtepu8_epi32(sixteen(from))); }
  static Floats loadInt8(const uint8_t* from) { return toFloats(_mm512_cvtepi8_epi32(sixteen(from))); }

  template <int Bits>
  [[gnu::always_inline]] static Codes unpack(const uint8_t* packed, Buffer&) {
    Codes codes;
    if constexpr (Bits == 8) {
      for (int q = 0; q < 8; q++) codes.quads[q] = _mm512_loadu_si512(packed + 64 * q);
      return codes;
    }
    const __m512i low = _mm512_set1_epi8(15);
    for (int q = 0; q < 4; q++) {
      const __m512i pair = _mm512_loadu_si512(packed + 64 * q);
      codes.quads[q] = _mm512_and_si512(pair, low);
      codes.quads[4 + q] = _mm512_and_si512(_mm512_srli_epi16(pair, 4), low);
    }
    if constexpr (Bits == 5) {
      const __m512i high = _mm512_set1_epi8(16);
      for (int q = 0; q < 8; q++) {
        uint64_t mask;
        std::memcpy(&mask, packed + 256 + 8 * q, sizeof mask);
        codes.quads[q] = _mm512_mask_add_epi8(codes.quads[q], mask, codes.quads[q], high);
      }
    }
    if constexpr (Bits == 6) {
      for (int half = 0; half < 2; half++) {
        const __m512i upper = _mm512_loadu_si512(packed + 256 + 64 * half);
        add(codes.quads[half], _mm512_slli_epi16(upper, 4));
        add(codes.quads[2 + half], _mm512_slli_epi16(upper, 2));
        add(codes.quads[4 + half], upper);
        add(codes.quads[6 + half], _mm512_srli_epi16(upper, 2));
      }
    }
    return codes;
  }
  [[gnu::always_inline]] static Codes loadCodes(const uint8_t* from) {
    Buffer none;
    return unpack<8>(from, none);
  }
  template <int Bits>
  static void unpackTo(const uint8_t* packed, uint8_t* to) {
    Buffer none;
    const Codes codes = unpack<Bits>(packed, none);
    for (int q = 0; q < 8; q++) _mm512_storeu_si512(to + 64 * q, codes.quads[q]);
  }
  template <int Bits>
  static Floats column(const Codes& codes, int k) {
    const __m512i shifted = _mm512_srl_epi32(codes.quads[k / 4], _mm_cvtsi32_si128(k % 4 * 8));
    return toFloats(_mm512_and_si512(shifted, _mm512_set1_epi32(255)));
  }

  template <int R, int First, int End, int Bits, bool Start>
  [[gnu::always_inline]] static void dots(const Codes& codes, const int8_t* x, [[maybe_unused]] const int32_t* start,
                                          Ints* to) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      to[r] = Start ? _mm512_set1_epi32(start[r]) : _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int q = First; q < End; q++) addProducts(to[r], codes.quads[q], x + r * kGroupColumns + q * 4);
    }
  }

 private:
  static __m128i sixteen(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  // Inline assembly: the broadcast is an operand of the instruction; gcc 12 emits a separate one.
  static void addProducts(Ints& sums, __m512i codes, const int8_t* x) {
    struct Four {
      int8_t bytes[4];
    };
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(codes), "m"(*reinterpret_cast<const Four*>(x)));
  }
  // code |= bits & 0x30
  static void add(__m512i& code, __m512i bits) {
    code = _mm512_ternarylogic_epi32(code, bits, _mm512_set1_epi8(0x30), 0xf8);
  }
};

}  // namespace
}  // namespace pocket
