// AMX's tiles in plain C++, by Intel's description of each instruction (Software Developer's Manual, volume 2: LDTILECFG,
// TILELOADD, TDPBSSD, TDPBF16PS, TILESTORED), so that linear/kernels/amx_kernel.h and attention/kernels/amx_kernel.h run where no processor has
// them. What would fault fails the running test instead. Not emulated: startRow and the second palette, which are not used.
#pragma once

#include <cstdint>

#include "cpu/tile_configuration.h"

namespace emulated {

// Each thread has eight tiles of its own, as on a processor.
void enter(const uint8_t* configuration);
void leave();
void zero(int tile);
void load(int tile, const void* from, int64_t stride);
void store(int tile, void* to, int64_t stride);
void dot(int sums, int a, int b);
void dotBf16(int sums, int a, int b);
bool isEntered();

}  // namespace emulated

// Unnamed, as linear/kernels/amx_kernel.h and attention/kernels/amx_kernel.h, which are compiled with flags of its own.
namespace {

struct EmulatedTiles {
  static void enter(const pocket::TileConfiguration& configuration) {
    emulated::enter(reinterpret_cast<const uint8_t*>(&configuration));
  }
  static void leave() { emulated::leave(); }
  template <int T>
  static void zero() {
    emulated::zero(T);
  }
  template <int T>
  static void load(const void* from, int64_t stride) {
    emulated::load(T, from, stride);
  }
  template <int T>
  static void store(void* to, int64_t stride) {
    emulated::store(T, to, stride);
  }
  template <int Sums, int X, int Weights>
  static void dot() {
    emulated::dot(Sums, X, Weights);
  }
  template <int Sums, int A, int B>
  static void dotBf16() {
    emulated::dotBf16(Sums, A, B);
  }
};

}  // namespace
