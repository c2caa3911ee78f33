// Sixteen floats in an AVX-512 register, for the AVX-512 kernels. Include only in files compiled with AVX-512 flags. In
// an unnamed namespace; attention/kernels/kernel.h gives the reason.
#pragma once

// gcc 12 warns about its own headers (gcc bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "attention/kernels/kernel.h"

namespace pocket {
namespace {

struct Vector16 {
  using Floats = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 4;

  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats set(float x) { return _mm512_set1_ps(x); }
  static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Floats x) { _mm512_storeu_ps(to, x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats select(uint32_t mask, Floats x, Floats otherwise) {
    return _mm512_mask_mov_ps(otherwise, static_cast<__mmask16>(mask), x);
  }
  static float first(Floats x) { return _mm512_cvtss_f32(x); }
  static float largest(Floats x) { return _mm512_reduce_max_ps(x); }
  static float total(Floats x) { return _mm512_reduce_add_ps(x); }

  // 2^x for x <= 0; zero below -126. NaN stays NaN.
  static Floats exp2(Floats x) {
    const __mmask16 kept = _mm512_cmp_ps_mask(x, set(-126.0f), _CMP_NLT_UQ);
    const Floats whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_maskz_scalef_ps(kept, exp2Polynomial<Vector16>(sub(x, whole)), whole);
  }

  static Floats loadF16(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Floats lowBf16(const uint32_t* pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16));
  }
  static Floats highBf16(const uint32_t* pairs) {
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(pairs), high));
  }
  static Floats lowBytes(const int8_t* pairs) {
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(loadBytes(pairs), 24), 24));
  }
  static Floats highBytes(const int8_t* pairs) { return _mm512_cvtepi32_ps(_mm512_srai_epi32(loadBytes(pairs), 8)); }

 private:
  static __m512i loadBytes(const int8_t* pairs) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(pairs)));
  }
};

}  // namespace
}  // namespace pocket
