// The products of attention/kernels/amx_kernel.h: one band of 16 query rows against a block of tiles, scores and values, and how the
// registers are configured for them. Knows no softmax. Unnamed for the reason given in attention/kernels/kernel.h.
//
// Tiles gives what linear/kernels/amx_kernel.h wants of it, and    dotPairs<sums, a, b>()    bf16 times bf16
#pragma once

#include <type_traits>

#include "attention/job.h"
#include "cpu/tile_configuration.h"

namespace pocket {
namespace {

constexpr int kBand = 16;  // query rows in a register
constexpr int kBlock = 4;  // tiles of cells in a block
constexpr int kBlockCells = kBlock * kTile;

// All eight registers are 16 rows of 64 bytes.
constexpr TileConfiguration kWholeTiles = {
    1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

// use(0) … use(Count - 1), as types, so that they can name registers.
template <int Count, class Use>
[[gnu::always_inline]] inline void times(const Use& use) {
  if constexpr (Count > 1) times<Count - 1>(use);
  use(std::integral_constant<int, Count - 1>());
}

// The queries of a band, (16, steps) words, and what rounding them took; the keys of the block's tiles, (steps, 16) words
// each, and how many words behind each lies its rest. No rests: null and 0.
struct ScoreSides {
  const uint32_t* q = nullptr;
  const uint32_t* qRest = nullptr;
  const void* const* keys = nullptr;
  int64_t keyRest = 0;
  int steps = 0;
};

// 32 dimensions from word `step` of the keys on.
template <class Tiles, int Width, int Query>
[[gnu::always_inline]] inline void addScores(const void* const* keys, int64_t step) {
  times<Width>([&](auto t) {
    Tiles::template load<6 + t() % 2>(static_cast<const uint32_t*>(keys[t()]) + step, 4 * kTile);
    Tiles::template dotPairs<t(), Query, 6 + t() % 2>();
  });
}

// scores (16, 64): columns [0, 16 * Width) of them.
template <class Tiles, int Width, bool QueryRest, bool KeyRest>
void scoreBand(const ScoreSides& of, float* scores) {
  times<Width>([](auto t) { Tiles::template zero<t()>(); });
  for (int s = 0; s < of.steps; s += kTile) {
    Tiles::template load<4>(of.q + s, int64_t{4} * of.steps);
    if constexpr (QueryRest) Tiles::template load<5>(of.qRest + s, int64_t{4} * of.steps);
    addScores<Tiles, Width, 4>(of.keys, int64_t{s} * kTile);
    if constexpr (QueryRest) addScores<Tiles, Width, 5>(of.keys, int64_t{s} * kTile);
    if constexpr (KeyRest) addScores<Tiles, Width, 4>(of.keys, of.keyRest + int64_t{s} * kTile);
  }
  times<Width>([&](auto t) { Tiles::template store<t()>(scores + t() * kTile, sizeof(float) * kBlockCells); });
}

// sums (16, headDim), columns [column, column + 16 * Columns) += weights (16, 32 words) x values: of each two tiles
// (16, headDim) words.
template <class Tiles, int Width, int Columns>
void addBand(const uint32_t* weights, const void* const* valuePairs, int headDim, int column, float* sums) {
  const int64_t stride = int64_t{4} * headDim;
  times<Columns>([&](auto c) { Tiles::template load<c()>(sums + column + c() * kTile, stride); });
  times<Width / 2>([&](auto p) {
    Tiles::template load<4 + p()>(weights + p() * kTile, 4 * kBlockCells / 2);
    const uint32_t* from = static_cast<const uint32_t*>(valuePairs[p()]) + column;
    times<Columns>([&](auto c) {
      Tiles::template load<6 + c() % 2>(from + c() * kTile, stride);
      Tiles::template dotPairs<c(), 4 + p(), 6 + c() % 2>();
    });
  });
  times<Columns>([&](auto c) { Tiles::template store<c()>(sums + column + c() * kTile, stride); });
}

}  // namespace
}  // namespace pocket
