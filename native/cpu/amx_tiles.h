// AMX's tiles for linear/kernels/amx_kernel.h and attention/kernels/amx_kernel.h: each operation is one instruction. Runs only after cpu/features.h has said
// yes. Knows no layer and no layout; unnamed, because each file that uses it is compiled with flags of its own.
//
// The instructions are written out: gcc 12's _tile_loadconfig names only the first bytes of the configuration and its
// _tile_loadd no memory at all, so that stores in front of them could be left for later.
#pragma once

#include <cstdint>

#include "cpu/tile_configuration.h"

namespace pocket {
namespace {

struct AmxTiles {
  static void enter(const TileConfiguration& configuration) {
    asm volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
  }
  // A thread that leaves tiles in use makes every switch to another one store them.
  static void leave() { asm volatile("tilerelease" ::: "memory"); }

  template <int T>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(T));
  }
  template <int T>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(T) : "memory");
  }
  // Signed bytes times signed bytes, in quads.
  template <int Sums, int A, int B>
  static void dot() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
  }
  // bf16 times bf16, in pairs.
  template <int Sums, int A, int B>
  static void dotBf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
  }
};

}  // namespace
}  // namespace pocket
