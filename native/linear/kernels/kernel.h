// The linear kernel, as a template over Math. Each linear/kernels/*.cpp defines 16 lanes of arithmetic and instantiates
// LinearTable<Math>. Everything is in an unnamed namespace: each .cpp is compiled with its own flags and needs its own
// copy, which the linker must not merge with one compiled for another instruction set. Compiled with -ffp-contract=off:
// only an explicit fma is fused.
//
// Per group of 32 columns, for row r and lane n (a row of W), in column order:
//   dot[n] = start[r] + sum over k of code[n][k] * x[r][k]         integers, exact
//   sum[n] = fma(dot[n], scale[n] * scale of x[r], sum[n])         and fma(minimum[n], extra[r], …) with a minimum
//
// Math provides:  Floats, Ints   16 lanes: set, load, store, fma, mul, add, toFloats, loadF16, loadUint8, loadInt8;
//                                loadInts for linear/kernels/amx_kernel.h
//                 Codes          the unpacked codes of a group: unpack<bits> from a record, loadCodes from an
//                                UnpackedPanel, unpackTo to an UnpackedPanel, column(codes, k) as floats
//                 dots<R, first quad, end quad, bits, start>   R rows x quads of a group, from `start` or zero
//                 kRows, kStreamRows   rows of a tile       kSigned8   8-bit codes are kept as code - 128
#pragma once

#include <utility>

#include "linear/kernels/finish.h"
#include "linear/kernels/quantize_rows.h"

namespace pocket {
namespace {

// --- weights -------------------------------------------------------------------------------------------------

template <class Math>
struct GroupScales {
  typename Math::Floats scale, second, minimum;  // second: of the last 16 columns; set only as the format needs
};

template <class Math, BlockFormat F>
inline GroupScales<Math> scalesAt(const uint8_t* record, int group) {
  constexpr BlockLayout kLayout = layoutOf(F);
  GroupScales<Math> found;
  const typename Math::Floats d = Math::loadF16(record);
  if constexpr (kLayout.groups == 1) {
    found.scale = d;
    if constexpr (kLayout.minimum) found.minimum = Math::loadF16(record + 32);
  } else if constexpr (kLayout.halves) {
    found.scale = Math::mul(d, Math::loadInt8(record + kLayout.scalesAt + 32 * group));
    found.second = Math::mul(d, Math::loadInt8(record + kLayout.scalesAt + 32 * group + 16));
  } else {
    const uint8_t* scales = record + kLayout.scalesAt + 16 * group;
    const typename Math::Floats minus = Math::mul(Math::loadF16(record + 32), Math::set(-1));
    found.scale = Math::mul(d, Math::loadUint8(scales));
    found.minimum = Math::mul(minus, Math::loadUint8(scales + 128));
  }
  return found;
}

// Adds the dot products of a group to the sum of a row. With halves, `first` and `last` are those of the first and last
// 16 columns; otherwise `first` has all. `extra` is that of the row.
template <class Math, BlockFormat F>
[[gnu::always_inline]] inline typename Math::Floats addDots(const typename Math::Ints& first,
                                                            [[maybe_unused]] const typename Math::Ints& last,
                                                            const GroupScales<Math>& scales, float xScale,
                                                            [[maybe_unused]] const int32_t* extra,
                                                            typename Math::Floats sum) {
  constexpr BlockLayout kLayout = layoutOf(F);
  if constexpr (kLayout.halves) {
    typename Math::Floats both = Math::mul(Math::toFloats(last), scales.second);
    both = Math::fma(Math::toFloats(first), scales.scale, both);
    return Math::fma(both, Math::set(xScale), sum);
  } else {
    sum = Math::fma(Math::toFloats(first), Math::mul(scales.scale, Math::set(xScale)), sum);
    if constexpr (kLayout.minimum) sum = Math::fma(scales.minimum, Math::set(floatAt(extra)), sum);
    return sum;
  }
}

// Adds the products of a group to the sums of R rows.
template <class Math, BlockFormat F, int R>
[[gnu::always_inline]] inline void addGroup(const typename Math::Codes& codes, const GroupScales<Math>& scales,
                                            const int8_t* x, const float* xScales, const int32_t* extra,
                                            typename Math::Floats* sums) {
  constexpr BlockLayout kLayout = layoutOf(F);
  constexpr bool kStart = !kLayout.minimum && !(Math::kSigned8 && kLayout.bits == 8);
  typename Math::Ints first[R], last[R];
  if constexpr (kLayout.halves) {
    Math::template dots<R, 0, 4, kLayout.bits, true>(codes, x, extra, first);
    Math::template dots<R, 4, 8, kLayout.bits, true>(codes, x, extra + R, last);
  } else {
    Math::template dots<R, 0, 8, kLayout.bits, kStart>(codes, x, extra, first);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) sums[r] = addDots<Math, F>(first[r], last[r], scales, xScales[r], extra + r, sums[r]);
}

constexpr int kPrefetchBytes = 2048;  // prefetch distance
constexpr int kStreamPrefetchBytes = 4096;  // prefetch distance of stream, which consumes faster

// May reach into the next panel; beyond the last one a prefetch has no effect.
template <int Distance = kPrefetchBytes>
inline void prefetch(const uint8_t* from, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(from + Distance + i, 0, 3);
}

template <class Math, BlockFormat F, int R>
void streamRows(const uint8_t* record, int columns, const RowTile& tile, float* sums) {
  constexpr BlockLayout kLayout = layoutOf(F);
  constexpr int kWords = wordsOf(extraOf(F));
  const int8_t* x = tile.codes;
  const float* xScales = tile.scales;
  const int32_t* extra = tile.extra;
  typename Math::Floats inner[R];
  for (int r = 0; r < R; r++) inner[r] = Math::load(sums + r * kPanelRows);
  for (int k = 0; k < columns; k += kLayout.recordColumns(), record += kLayout.recordBytes) {
    prefetch<kStreamPrefetchBytes>(record, kLayout.codesAt);
    for (int g = 0; g < kLayout.groups; g++) {
      const uint8_t* packed = record + kLayout.codesAt + g * kLayout.groupBytes;
      prefetch<kStreamPrefetchBytes>(packed, kLayout.groupBytes);
      typename Math::Buffer buffer;
      const typename Math::Codes codes = Math::template unpack<kLayout.bits>(packed, buffer);
      addGroup<Math, F, R>(codes, scalesAt<Math, F>(record, g), x, xScales, extra, inner);
      x += R * kGroupColumns, xScales += R, extra += R * kWords;
    }
  }
  for (int r = 0; r < R; r++) Math::store(sums + r * kPanelRows, inner[r]);
}

template <class Math, BlockFormat F, int R>
void multiplyRows(const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums) {
  constexpr BlockLayout kLayout = layoutOf(F);
  constexpr int kWords = wordsOf(extraOf(F)), kScales = kLayout.halves ? 32 : 16;
  const int8_t* x = tile.codes;
  const float* xScales = tile.scales;
  const int32_t* extra = tile.extra;
  typename Math::Floats inner[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) inner[r] = Math::load(sums + r * kPanelRows);
  for (int g = 0; g < columns / kGroupColumns; g++) {
    GroupScales<Math> scales;
    scales.scale = Math::load(panel.scales + g * kScales);
    if constexpr (kLayout.halves) scales.second = Math::load(panel.scales + g * kScales + 16);
    if constexpr (kLayout.minimum) scales.minimum = Math::load(panel.minima + g * 16);
    addGroup<Math, F, R>(Math::loadCodes(panel.codes + g * kGroupCodes), scales, x, xScales, extra, inner);
    x += R * kGroupColumns, xScales += R, extra += R * kWords;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) Math::store(sums + r * kPanelRows, inner[r]);
}

template <class Math, BlockFormat F>
void unpackPanel(const uint8_t* record, int columns, const UnpackedPanel& to) {
  constexpr BlockLayout kLayout = layoutOf(F);
  constexpr int kScales = kLayout.halves ? 32 : 16;
  for (int group = 0; group < columns / kGroupColumns; record += kLayout.recordBytes)
    for (int g = 0; g < kLayout.groups; g++, group++) {
      prefetch(record + kLayout.codesAt + g * kLayout.groupBytes, kLayout.groupBytes);
      Math::template unpackTo<kLayout.bits>(record + kLayout.codesAt + g * kLayout.groupBytes,
                                            to.codes + group * kGroupCodes);
      const GroupScales<Math> scales = scalesAt<Math, F>(record, g);
      Math::store(to.scales + group * kScales, scales.scale);
      if constexpr (kLayout.halves) Math::store(to.scales + group * kScales + 16, scales.second);
      if constexpr (kLayout.minimum) Math::store(to.minima + group * 16, scales.minimum);
    }
}

// --- in f32 --------------------------------------------------------------------------------------------------

template <class Math, BlockFormat F>
void dequantizePanel(const uint8_t* record, int columns, float* to) {
  constexpr BlockLayout kLayout = layoutOf(F);
  constexpr int kZero = Math::kSigned8 && kLayout.bits == 8 ? 0 : kLayout.zero;
  for (int k = 0; k < columns; record += kLayout.recordBytes)
    for (int g = 0; g < kLayout.groups; g++, k += kGroupColumns) {
      typename Math::Buffer buffer;
      const typename Math::Codes codes =
          Math::template unpack<kLayout.bits>(record + kLayout.codesAt + g * kLayout.groupBytes, buffer);
      const GroupScales<Math> scales = scalesAt<Math, F>(record, g);
#pragma GCC unroll 32
      for (int i = 0; i < kGroupColumns; i++) {
        typename Math::Floats value = Math::template column<kLayout.bits>(codes, i);
        if constexpr (kZero != 0) value = Math::add(value, Math::set(-kZero));
        if constexpr (kLayout.minimum) value = Math::fma(value, scales.scale, scales.minimum);
        else value = Math::mul(value, kLayout.halves && i >= 16 ? scales.second : scales.scale);
        Math::store(to + (k + i) * kPanelRows, value);
      }
    }
}

template <class Math, int R>
void multiplyFloatRows(const float* weights, const float* x, int columns, float* sums) {
  typename Math::Floats inner[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) inner[r] = Math::load(sums + r * kPanelRows);
  for (int k = 0; k < columns; k++, weights += kPanelRows, x += R) {
    const typename Math::Floats weight = Math::load(weights);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) inner[r] = Math::fma(weight, Math::set(x[r]), inner[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) Math::store(sums + r * kPanelRows, inner[r]);
}

// --- the table -----------------------------------------------------------------------------------------------

// Calls use() with the format as a compile-time constant.
template <class Use>
void withFormat(BlockFormat format, Use use) {
  switch (format) {
    case BlockFormat::kQ4_0: return use(std::integral_constant<BlockFormat, BlockFormat::kQ4_0>());
    case BlockFormat::kQ4_1: return use(std::integral_constant<BlockFormat, BlockFormat::kQ4_1>());
    case BlockFormat::kQ5_0: return use(std::integral_constant<BlockFormat, BlockFormat::kQ5_0>());
    case BlockFormat::kQ5_1: return use(std::integral_constant<BlockFormat, BlockFormat::kQ5_1>());
    case BlockFormat::kQ8_0: return use(std::integral_constant<BlockFormat, BlockFormat::kQ8_0>());
    case BlockFormat::kQ4_K: return use(std::integral_constant<BlockFormat, BlockFormat::kQ4_K>());
    case BlockFormat::kQ5_K: return use(std::integral_constant<BlockFormat, BlockFormat::kQ5_K>());
    case BlockFormat::kQ6_K: return use(std::integral_constant<BlockFormat, BlockFormat::kQ6_K>());
  }
}

template <class Math>
struct LinearTable {
  template <BlockFormat F, int... I>
  static void streamAny(const uint8_t* panel, int columns, const RowTile& tile, float* sums,
                        std::integer_sequence<int, I...>) {
    using Function = void (*)(const uint8_t*, int, const RowTile&, float*);
    constexpr Function kFunctions[] = {streamRows<Math, F, I + 1>...};
    kFunctions[tile.rows - 1](panel, columns, tile, sums);
  }
  static void stream(BlockFormat format, const uint8_t* panel, int columns, const RowTile& tile, float* sums) {
    withFormat(format, [&](auto f) {
      streamAny<f()>(panel, columns, tile, sums, std::make_integer_sequence<int, Math::kStreamRows>());
    });
  }

  template <BlockFormat F, int... I>
  static void multiplyAny(const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums,
                          std::integer_sequence<int, I...>) {
    using Function = void (*)(const UnpackedPanel&, int, const RowTile&, float*);
    constexpr Function kFunctions[] = {multiplyRows<Math, F, I + 1>...};
    kFunctions[tile.rows - 1](panel, columns, tile, sums);
  }
  // Unpacked formats share code if their dot products are the same.
  static void multiply(BlockFormat format, const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums) {
    withFormat(format, [&](auto f) {
      multiplyAny<Math::sameWhenUnpacked(f())>(panel, columns, tile, sums,
                                               std::make_integer_sequence<int, Math::kRows>());
    });
  }

  static void unpack(BlockFormat format, const uint8_t* record, int columns, const UnpackedPanel& to) {
    withFormat(format, [&](auto f) { unpackPanel<Math, f()>(record, columns, to); });
  }
  static void dequantize(BlockFormat format, const uint8_t* record, int columns, float* to) {
    withFormat(format, [&](auto f) { dequantizePanel<Math, f()>(record, columns, to); });
  }

  template <int... I>
  static void multiplyFloatsAny(const float* weights, const float* x, int columns, int rows, float* sums,
                                std::integer_sequence<int, I...>) {
    using Function = void (*)(const float*, const float*, int, float*);
    constexpr Function kFunctions[] = {multiplyFloatRows<Math, I + 1>...};
    kFunctions[rows - 1](weights, x, columns, sums);
  }
  static void multiplyFloats(const float* weights, const float* x, int columns, int rows, float* sums) {
    multiplyFloatsAny(weights, x, columns, rows, sums, std::make_integer_sequence<int, Math::kRows>());
  }

  static constexpr LinearKernel named(const char* name) {
    return {name,   Math::kRows, Math::kRows, Math::kStreamRows, quantizeRows, stream,
            unpack, multiply,    dequantize,  multiplyFloats,    finishRows};
  }
};

}  // namespace
}  // namespace pocket
