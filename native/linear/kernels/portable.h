// The Math of the linear kernel in plain C++. In an unnamed namespace; linear/kernels/kernel.h gives the reason.
#pragma once

#include "linear/kernels/kernel.h"

namespace pocket {
namespace {

struct PortableMath {
  struct Floats {
    float lanes[16];
  };
  struct Ints {
    int32_t lanes[16];
  };
  using Codes = const uint8_t*;
  struct Buffer {
    uint8_t bytes[kGroupCodes];
  };
  static constexpr int kRows = 4;
  static constexpr int kStreamRows = 4;
  static constexpr bool kSigned8 = false;

  static constexpr BlockFormat sameWhenUnpacked(BlockFormat format) {
    if (layoutOf(format).minimum) return BlockFormat::kQ4_1;
    return layoutOf(format).halves ? BlockFormat::kQ6_K : BlockFormat::kQ4_0;
  }

  template <class At>
  static Floats each(At at) {
    Floats result;
    for (int n = 0; n < 16; n++) result.lanes[n] = at(n);
    return result;
  }
  static Floats set(float x) {
    return each([&](int) { return x; });
  }
  static Floats load(const float* from) {
    return each([&](int n) { return from[n]; });
  }
  static Ints loadInts(const int32_t* from) {
    Ints result;
    std::memcpy(result.lanes, from, sizeof result.lanes);
    return result;
  }
  static void store(float* to, const Floats& x) { std::memcpy(to, x.lanes, sizeof x.lanes); }
  // Rounds twice: a real fma is a library call on processors without it.
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each([&](int n) { return a.lanes[n] * b.lanes[n] + c.lanes[n]; });
  }
  static Floats mul(const Floats& a, const Floats& b) {
    return each([&](int n) { return a.lanes[n] * b.lanes[n]; });
  }
  static Floats add(const Floats& a, const Floats& b) {
    return each([&](int n) { return a.lanes[n] + b.lanes[n]; });
  }
  static Floats toFloats(const Ints& x) {
    return each([&](int n) { return static_cast<float>(x.lanes[n]); });
  }
  static Floats loadUint8(const uint8_t* from) {
    return each([&](int n) { return static_cast<float>(from[n]); });
  }
  static Floats loadInt8(const uint8_t* from) {
    return each([&](int n) { return static_cast<float>(static_cast<int8_t>(from[n])); });
  }
  static Floats loadF16(const uint8_t* from) {
    return each([&](int n) { return half(from + 2 * n); });
  }

  template <int Bits>
  static Codes unpack(const uint8_t* packed, Buffer& buffer) {
    if constexpr (Bits == 8) return packed;
    unpackTo<Bits>(packed, buffer.bytes);
    return buffer.bytes;
  }
  static Codes loadCodes(const uint8_t* from) { return from; }

  template <int Bits>
  static void unpackTo(const uint8_t* packed, uint8_t* to) {
    if constexpr (Bits == 8) return static_cast<void>(std::memcpy(to, packed, kGroupCodes));
    for (int i = 0; i < 256; i++) to[i] = packed[i] & 15;
    for (int i = 0; i < 256; i++) to[256 + i] = packed[i] >> 4;
    const uint8_t* upper = packed + 256;
    if constexpr (Bits == 5)
      for (int i = 0; i < kGroupCodes; i++) to[i] |= (upper[i / 8] >> i % 8 & 1) << 4;
    if constexpr (Bits == 6)
      for (int part = 0; part < 4; part++)
        for (int i = 0; i < 128; i++) to[part * 128 + i] |= (upper[i] >> 2 * part & 3) << 4;
  }
  template <int Bits>
  static Floats column(const Codes& codes, int k) {
    return each([&](int n) { return static_cast<float>(codes[k / 4 * 64 + n * 4 + k % 4]); });
  }

  template <int R, int First, int End, int Bits, bool Start>
  static void dots(const Codes& codes, const int8_t* x, [[maybe_unused]] const int32_t* start, Ints* to) {
    for (int r = 0; r < R; r++)
      for (int n = 0; n < 16; n++) to[r].lanes[n] = Start ? start[r] : 0;
    for (int q = First; q < End; q++)
      for (int r = 0; r < R; r++) {
        const int8_t* four = x + r * kGroupColumns + q * 4;
        const uint8_t* quad = codes + q * 64;
        for (int n = 0; n < 16; n++)
          to[r].lanes[n] +=
              quad[4 * n] * four[0] + quad[4 * n + 1] * four[1] + quad[4 * n + 2] * four[2] + quad[4 * n + 3] * four[3];
      }
  }

 private:
  static float half(const uint8_t* from) {
    const uint32_t bits = from[0] | from[1] << 8, magnitude = bits & 0x7fff;
    // Adjusts the exponent by a multiplication, which is correct for subnormals; infinity and NaN are handled below.
    const uint32_t wide = magnitude << 13;
    float value = floatAt(&wide) * 0x1p112f;
    if (magnitude >= 0x7c00) {
      const uint32_t special = wide | 0x7f800000u;
      value = floatAt(&special);
    }
    return bits >> 15 != 0 ? -value : value;
  }
};

}  // namespace
}  // namespace pocket
