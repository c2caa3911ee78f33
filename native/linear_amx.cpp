// The linear kernel for x86-64 with AMX: tiles for many rows, the VNNI kernel for all else. Runs only after amx.h has
// said yes.
//
// The instructions are written out: gcc 12's _tile_loadconfig names only the first bytes of the configuration and its
// _tile_loadd no memory at all, so that stores in front of them could be left for later.
#include "linear_avx512vnni.h"
#include "linear_tiles.h"

namespace pocket {
namespace {

struct AmxTiles {
  static void enter(const uint8_t* configuration) {
    struct Bytes {
      uint8_t all[64];
    };
    asm volatile("ldtilecfg %0" ::"m"(*reinterpret_cast<const Bytes*>(configuration)) : "memory");
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
  template <int Sums, int X, int Weights>
  static void dot() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(X), "i"(Weights));
  }
};

}  // namespace

const LinearKernel& linearKernelAmx() {
  static const LinearKernel kernel = TileTable<VnniMath, AmxTiles>::over(kLinearAvx512Vnni, "amx");
  return kernel;
}

}  // namespace pocket
