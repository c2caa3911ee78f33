// The attention kernel for x86-64 with AVX2, FMA and F16C. Compiled with those flags; call only if cpu/features.h
// supports Isa::kAvx2.
#include <immintrin.h>

#include "attention/kernels/kernel.h"

namespace pocket {
namespace {

struct Vector8 {
  using Floats = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kRows = 6;
  static constexpr int kVectors = 2;

  static Floats zero() { return _mm256_setzero_ps(); }
  static Floats set(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats select(uint32_t mask, Floats x, Floats otherwise) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bit), bit);
    return _mm256_blendv_ps(otherwise, x, _mm256_castsi256_ps(set));
  }
  static float first(Floats x) { return _mm256_cvtss_f32(x); }
  static float largest(Floats x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
  }
  static float total(Floats x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
  }

  // 2^x for x <= 0; zero below -126. NaN stays NaN: vmaxps returns its second operand then.
  static Floats exp2(Floats x) {
    const Floats clamped = _mm256_max_ps(set(-126.0f), x);
    const Floats whole = _mm256_round_ps(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127));
    const Floats power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    const Floats result = mul(exp2Polynomial<Vector8>(sub(clamped, whole)), power);
    return _mm256_and_ps(result, _mm256_cmp_ps(x, set(-126.0f), _CMP_NLT_UQ));
  }

  static Floats loadF16(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Floats lowBf16(const uint32_t* pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(loadBits(pairs), 16)); }
  static Floats highBf16(const uint32_t* pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(loadBits(pairs), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static Floats lowBytes(const int8_t* pairs) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(loadBytes(pairs), 24), 24));
  }
  static Floats highBytes(const int8_t* pairs) { return _mm256_cvtepi32_ps(_mm256_srai_epi32(loadBytes(pairs), 8)); }

 private:
  static __m256i loadBytes(const int8_t* pairs) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pairs)));
  }
  static __m256i loadBits(const uint32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
};

}  // namespace

void attendAvx2(const AttendJob& job) { Attend<Vector8>(job).run(); }

}  // namespace pocket
