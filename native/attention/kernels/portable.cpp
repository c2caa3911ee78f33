// The attention kernel for any machine: four floats in the vector extension of the compiler, which compiles to SSE2 on
// x86-64 and to NEON on 64-bit ARM without flags.
#include "attention/kernels/kernel.h"

namespace pocket {
namespace {

typedef float Floats4 __attribute__((vector_size(16)));
typedef uint32_t Bits4 __attribute__((vector_size(16)));

struct Vector4 {
  using Floats = Floats4;
  static constexpr int kWidth = 4;
  static constexpr int kRows = 2;
  static constexpr int kVectors = 4;

  static Floats zero() { return Floats{}; }
  static Floats set(float x) { return Floats{x, x, x, x}; }
  static Floats load(const float* from) { return read<Floats>(from); }
  static void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }
  static Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
  static Floats add(Floats a, Floats b) { return a + b; }
  static Floats sub(Floats a, Floats b) { return a - b; }
  static Floats mul(Floats a, Floats b) { return a * b; }
  static Floats max(Floats a, Floats b) { return a > b ? a : b; }
  static Floats select(uint32_t mask, Floats x, Floats otherwise) {
    const Bits4 bit = {1, 2, 4, 8};
    return (bit & mask) != 0 ? x : otherwise;
  }
  static float first(Floats x) { return x[0]; }
  static float largest(Floats x) {
    const float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }
  static float total(Floats x) { return (x[0] + x[2]) + (x[1] + x[3]); }

  // 2^x for x <= 0; zero below -126. NaN stays NaN. See exp2Polynomial.
  static Floats exp2(Floats x) {
    const Floats clamped = x < -126.0f ? set(-126.0f) : x;
    const Floats shifted = clamped + kRounder;  // the low bits now hold the integer nearest to x
    const Floats fraction = clamped - (shifted - kRounder);
    const Floats power = cast<Floats>((cast<Bits4>(shifted) << 23) + 0x3f800000u);
    return x < -126.0f ? zero() : exp2Polynomial<Vector4>(fraction) * power;
  }

  static Floats loadF16(const uint16_t* from) {
    const Bits4 h = widen(from);
    const Bits4 magnitude = (h & 0x7fffu) << 13;
    const Floats finite = cast<Floats>(magnitude) * 0x1p112f;  // adjusts the exponent bias; correct for subnormals
    const Bits4 special = magnitude | 0x7f800000u;
    const Bits4 bits = (h & 0x7c00u) == 0x7c00u ? special : cast<Bits4>(finite);
    return cast<Floats>(bits | ((h & 0x8000u) << 16));
  }
  static Floats lowBf16(const uint32_t* pairs) { return cast<Floats>(read<Bits4>(pairs) << 16); }
  static Floats highBf16(const uint32_t* pairs) { return cast<Floats>(read<Bits4>(pairs) & 0xffff0000u); }
  static Floats lowBytes(const int8_t* pairs) { return everyOther(pairs); }
  static Floats highBytes(const int8_t* pairs) { return everyOther(pairs + 1); }

 private:
  static Floats everyOther(const int8_t* from) {
    return Floats{static_cast<float>(from[0]), static_cast<float>(from[2]), static_cast<float>(from[4]),
                  static_cast<float>(from[6])};
  }
  static constexpr float kRounder = 0x1.8p23f;
  template <class To>
  static To read(const void* from) {
    To to;
    std::memcpy(&to, from, sizeof to);
    return to;
  }
  template <class To, class From>
  static To cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    return read<To>(&from);
  }
  static Bits4 widen(const uint16_t* from) { return Bits4{from[0], from[1], from[2], from[3]}; }
};

}  // namespace

void attendPortable(const AttendJob& job) { Attend<Vector4>(job).run(); }

}  // namespace pocket
