// The linear kernel for 64-bit ARM with the int8 dot product (sdot, ARMv8.2). Compiled with that flag; call only if
// cpu/features.h supports Isa::kNeon. Both factors are signed: codes of up to six bits are non-negative, 8-bit codes
// are kept as code - 128. Tested under an emulator only; speed not measured.
#include <arm_neon.h>

#include "linear/kernels/kernel.h"

namespace pocket {
namespace {

struct NeonMath {
  struct Floats {
    float32x4_t four[4];
  };
  struct Ints {
    int32x4_t four[4];
  };
  using Codes = const uint8_t*;
  struct Buffer {
    alignas(16) uint8_t bytes[kGroupCodes];
  };
  static constexpr int kRows = 4;
  static constexpr int kStreamRows = 4;
  static constexpr bool kSigned8 = true;

  static constexpr BlockFormat sameWhenUnpacked(BlockFormat format) { return format; }

  template <class At>
  [[gnu::always_inline]] static Floats each(At at) {
    return {{at(0), at(1), at(2), at(3)}};
  }
  static Floats set(float x) {
    return each([&](int) { return vdupq_n_f32(x); });
  }
  static Floats load(const float* from) {
    return each([&](int i) { return vld1q_f32(from + 4 * i); });
  }
  static void store(float* to, const Floats& x) {
    for (int i = 0; i < 4; i++) vst1q_f32(to + 4 * i, x.four[i]);
  }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each([&](int i) { return vfmaq_f32(c.four[i], a.four[i], b.four[i]); });
  }
  static Floats mul(const Floats& a, const Floats& b) {
    return each([&](int i) { return vmulq_f32(a.four[i], b.four[i]); });
  }
  static Floats add(const Floats& a, const Floats& b) {
    return each([&](int i) { return vaddq_f32(a.four[i], b.four[i]); });
  }
  static Floats toFloats(const Ints& x) {
    return each([&](int i) { return vcvtq_f32_s32(x.four[i]); });
  }
  static Floats loadF16(const uint8_t* from) {
    return each([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(from + 8 * i))); });
  }
  static Floats loadUint8(const uint8_t* from) {
    return each([&](int i) {
      return vcvtq_f32_u32(uint32x4_t{from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]});
    });
  }
  static Floats loadInt8(const uint8_t* from) {
    const int8_t* at = reinterpret_cast<const int8_t*>(from);
    return each(
        [&](int i) { return vcvtq_f32_s32(int32x4_t{at[4 * i], at[4 * i + 1], at[4 * i + 2], at[4 * i + 3]}); });
  }

  template <int Bits>
  static Codes unpack(const uint8_t* packed, Buffer& buffer) {
    unpackTo<Bits>(packed, buffer.bytes);
    return buffer.bytes;
  }
  static Codes loadCodes(const uint8_t* from) { return from; }

  template <int Bits>
  static void unpackTo(const uint8_t* packed, uint8_t* to) {
    if constexpr (Bits == 8) {
      for (int i = 0; i < kGroupCodes; i += 16) vst1q_u8(to + i, veorq_u8(vld1q_u8(packed + i), vdupq_n_u8(128)));
      return;
    }
    const uint8_t* upper = packed + 256;
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ull));
    for (int i = 0; i < 256; i += 16) {
      const uint8x16_t pair = vld1q_u8(packed + i);
      uint8x16_t codes[2] = {vandq_u8(pair, vdupq_n_u8(15)), vshrq_n_u8(pair, 4)};
      for (int half = 0; half < 2; half++) {
        const int at = 256 * half + i;
        if constexpr (Bits == 5) {
          const uint8x16_t spread = vcombine_u8(vdup_n_u8(upper[at / 8]), vdup_n_u8(upper[at / 8 + 1]));
          codes[half] = vorrq_u8(codes[half], vandq_u8(vtstq_u8(spread, bit), vdupq_n_u8(16)));
        }
        if constexpr (Bits == 6) {
          const uint8x16_t shifted =
              vshlq_u8(vld1q_u8(upper + at % 128), vdupq_n_s8(static_cast<int8_t>(at / 128 * -2)));
          codes[half] = vorrq_u8(codes[half], vshlq_n_u8(vandq_u8(shifted, vdupq_n_u8(3)), 4));
        }
        vst1q_u8(to + at, codes[half]);
      }
    }
  }
  template <int Bits>
  static Floats column(const Codes& codes, int k) {
    const int32x4_t up = vdupq_n_s32(24 - k % 4 * 8);
    return each([&](int i) {
      const int32x4_t word = vreinterpretq_s32_u8(vld1q_u8(codes + k / 4 * 64 + 16 * i));
      return vcvtq_f32_s32(vshrq_n_s32(vshlq_s32(word, up), 24));
    });
  }

  template <int R, int First, int End, int Bits, bool Start>
  [[gnu::always_inline]] static void dots(const Codes& codes, const int8_t* x, [[maybe_unused]] const int32_t* start,
                                          Ints* to) {
    for (int r = 0; r < R; r++)
      for (int i = 0; i < 4; i++) to[r].four[i] = vdupq_n_s32(Start ? start[r] : 0);
#pragma GCC unroll 8
    for (int q = First; q < End; q++) {
      int8x16_t quad[4];
      for (int i = 0; i < 4; i++) quad[i] = vreinterpretq_s8_u8(vld1q_u8(codes + q * 64 + 16 * i));
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) {
        const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(wordAt(x + r * kGroupColumns + q * 4)));
        for (int i = 0; i < 4; i++) to[r].four[i] = vdotq_s32(to[r].four[i], quad[i], four);
      }
    }
  }
};

}  // namespace

const LinearKernel kLinearNeon = LinearTable<NeonMath>::named("neon");

}  // namespace pocket
