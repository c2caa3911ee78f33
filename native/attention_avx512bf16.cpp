// The attention kernel for x86-64 with AVX-512 and its bf16 dot product, which multiplies 32 pairs at once and
// adds in f32. It needs both factors in bf16: over a bf16 store the rotated queries and the softmax weights are
// rounded to eight bits of mantissa (2^-9 relative, about what storing the keys and values has cost already).
// Over every other store it is the AVX-512 kernel. Runs only after attention.cpp has asked the processor.
#include "attention_vector16.h"

namespace pocket {
namespace {

// Word is two bf16, the even one low; tiles are read as they lie in the store.
struct PairMath {
  using Vector = Vector16;
  using Word = uint32_t;
  using Words = __m512bh;
  static constexpr int kPair = 2;
  static constexpr int kRows = Vector::kRows;
  static constexpr int kVectors = Vector::kVectors;

  static Words loadWords(const Word* from) { return cast(_mm512_loadu_si512(from)); }
  static Words setWords(Word word) { return cast(_mm512_set1_epi32(static_cast<int>(word))); }
  static Words setWeight(const float* weight) {
    Word word;
    std::memcpy(&word, weight, sizeof word);
    return setWords(word);
  }
  static Vector::Floats dot(Words a, Words b, Vector::Floats sum) { return _mm512_dpbf16_ps(sum, a, b); }
  static void pack(const float* from, int count, Word* to) {
    for (int i = 0; i < count; i += Vector::kWidth) storeWeights(to + i / 2, Vector::load(from + i));
  }
  static void storeWeights(void* to, Vector::Floats x) {
    const __m256bh rounded = _mm512_cvtneps_pbh(x);
    std::memcpy(to, &rounded, sizeof rounded);
  }

 private:
  static Words cast(__m512i bits) {
    Words words;
    std::memcpy(&words, &bits, sizeof words);
    return words;
  }
};

}  // namespace

void attendAvx512Bf16(const AttendJob& job) {
  if (job.type == KvType::kBf16) return Attend<PairMath>(job).run();
  attendAvx512(job);
}

}  // namespace pocket
