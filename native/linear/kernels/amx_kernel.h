// Replaces `multiply` of another linear kernel by AMX tiles (16 rows of 64 bytes; TDPBSSD multiplies int8). All other
// functions (few rows, quantization, f32, results) stay those of the kernel over the same Math. Sums are made by the
// same operations in the same order, so a row gets the same bits from both. In an unnamed namespace;
// linear/kernels/kernel.h gives the reason.
//
// A group of a panel is a tile of weights as stored; 16 rows of x of 32 bytes are a tile:
//
//   x        16 rows of 32 bytes            tile 2, 4                with halves: 16 rows of 16 bytes     tile 6
//   weights  8 quads of 64 bytes            tile 3, 5                             4 quads of 64 bytes     tile 7
//   dots     16 rows of 16 int32            tile 0, 1   +=  x * weights
//
// Dots are stored, loaded row by row and scaled (addDots) while the dots of the next group are computed. Weights are
// signed here, code - zero, so that dots start at zero. Sixteen rows are always loaded and multiplied; the results of
// rows beyond the tile are ignored.
//
// Tiles provides:  enter(configuration), leave()                around all others, on each thread
//                  zero<t>, load<t>(from, stride), store<t>(to, stride)
//                  dot<sums, x, weights>()                      int8 times int8
#pragma once

#include "cpu/tile_configuration.h"
#include "linear/kernels/kernel.h"

namespace pocket {
namespace {

constexpr TileConfiguration kGroupTileShapes = {
    1, 0, {}, {64, 64, 32, 64, 32, 64, 16, 64}, {16, 16, 16, 8, 16, 8, 16, 4}};

template <class Math, class Tiles>
class AmxLinearTable {
 public:
  // A copy of `rest` with `unpack` and `multiply` by tiles. `rest` is not referenced later.
  static LinearKernel basedOn(const LinearKernel& rest, const char* name) {
    LinearKernel kernel = rest;
    kernel.name = name;
    kernel.tileRows = kMaxTileRows;
    kernel.unpack = unpack;
    kernel.multiply = multiply;
    kernel.enter = enter;
    kernel.leave = Tiles::leave;
    return kernel;
  }

 private:
  struct Dots {
    alignas(64) int32_t first[kMaxTileRows * kPanelRows];
    alignas(64) int32_t last[kMaxTileRows * kPanelRows];  // only with halves
  };

  static void enter() { Tiles::enter(kGroupTileShapes); }

  static void unpack(BlockFormat format, const uint8_t* record, int columns, const UnpackedPanel& to) {
    withFormat(format, [&](auto f) {
      constexpr BlockLayout kLayout = layoutOf(f());
      constexpr int kZero = Math::kSigned8 && kLayout.bits == 8 ? 0 : kLayout.zero;
      unpackPanel<Math, f()>(record, columns, to);
      if constexpr (kZero != 0)
        for (int i = 0; i < columns * kPanelRows; i++) to.codes[i] = static_cast<uint8_t>(to.codes[i] - kZero);
    });
  }

  template <BlockFormat F, int... I>
  static void multiplyAny(const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums,
                          std::integer_sequence<int, I...>) {
    using Function = void (*)(const UnpackedPanel&, int, const RowTile&, float*);
    constexpr Function kFunctions[] = {multiplyRows<F, I + 1>...};
    kFunctions[tile.rows - 1](panel, columns, tile, sums);
  }
  static void multiply(BlockFormat format, const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums) {
    withFormat(format, [&](auto f) {
      multiplyAny<Math::sameWhenUnpacked(f())>(panel, columns, tile, sums,
                                               std::make_integer_sequence<int, kMaxTileRows>());
    });
  }

  template <BlockFormat F, int R>
  static void multiplyRows(const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums) {
    const int groups = columns / kGroupColumns;
    Dots even, odd;
    typename Math::Floats inner[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) inner[r] = Math::load(sums + r * kPanelRows);
    makeDots<F, R, 0>(panel, 0, tile, even);
    for (int g = 0; g < groups; g += 2) {
      if (g + 1 < groups) makeDots<F, R, 1>(panel, g + 1, tile, odd);
      scaleDots<F, R>(panel, g, tile, even, inner);
      if (g + 1 == groups) break;
      if (g + 2 < groups) makeDots<F, R, 0>(panel, g + 2, tile, even);
      scaleDots<F, R>(panel, g + 1, tile, odd, inner);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) Math::store(sums + r * kPanelRows, inner[r]);
  }

  // Consecutive groups use different tiles (Odd) to avoid a dependency.
  template <BlockFormat F, int R, int Odd>
  [[gnu::always_inline]] static void makeDots(const UnpackedPanel& panel, int group, const RowTile& tile, Dots& dots) {
    const int8_t* x = tile.codes + static_cast<int64_t>(group) * R * kGroupColumns;
    const uint8_t* weights = panel.codes + group * kGroupCodes;
    if constexpr (layoutOf(F).halves) {
      product<Odd, 6, 7>(x, weights, dots.first);
      product<Odd, 6, 7>(x + kGroupColumns / 2, weights + kGroupCodes / 2, dots.last);
    } else {
      product<Odd, 2 + 2 * Odd, 3 + 2 * Odd>(x, weights, dots.first);
    }
  }

  template <int Sums, int X, int Weights>
  [[gnu::always_inline]] static void product(const int8_t* x, const uint8_t* weights, int32_t* dots) {
    Tiles::template zero<Sums>();
    Tiles::template load<X>(x, kGroupColumns);
    Tiles::template load<Weights>(weights, 4 * kPanelRows);
    Tiles::template dot<Sums, X, Weights>();
    Tiles::template store<Sums>(dots, sizeof(int32_t) * kPanelRows);
  }

  template <BlockFormat F, int R>
  [[gnu::always_inline]] static void scaleDots(const UnpackedPanel& panel, int group, const RowTile& tile,
                                               const Dots& dots, typename Math::Floats* sums) {
    constexpr BlockLayout kLayout = layoutOf(F);
    constexpr int kWords = wordsOf(extraOf(F)), kScales = kLayout.halves ? 32 : 16;
    GroupScales<Math> scales;
    scales.scale = Math::load(panel.scales + group * kScales);
    if constexpr (kLayout.halves) scales.second = Math::load(panel.scales + group * kScales + 16);
    if constexpr (kLayout.minimum) scales.minimum = Math::load(panel.minima + group * 16);
    const float* xScales = tile.scales + static_cast<int64_t>(group) * R;
    const int32_t* extra = tile.extra + static_cast<int64_t>(group) * R * kWords;
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const typename Math::Ints first = Math::loadInts(dots.first + r * kPanelRows);
      if constexpr (kLayout.halves) {
        const typename Math::Ints last = Math::loadInts(dots.last + r * kPanelRows);
        sums[r] = addDots<Math, F>(first, last, scales, xScales[r], extra + r, sums[r]);
      } else {
        sums[r] = addDots<Math, F>(first, first, scales, xScales[r], extra + r, sums[r]);
      }
    }
  }
};

}  // namespace
}  // namespace pocket
