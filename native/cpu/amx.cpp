// Asks processor and Linux for AMX. Linux gives a process room for tiles, 8 KiB a thread, only on demand; other systems
// are taken to have none, because nobody has tried them.
#include "cpu/amx.h"

#if defined(POCKET_AMX) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace pocket {

#if defined(POCKET_AMX) && defined(__linux__)
namespace {

constexpr unsigned kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of arch_prctl
constexpr unsigned kTileData = 18;               // its number as a component of the saved state
constexpr uint64_t kTileState = 3u << 17;        // bits of XCR0: configuration and data
constexpr unsigned kSavesState = 1u << 27;       // leaf 1, ecx: OSXSAVE, without which xgetbv is no instruction
constexpr unsigned kTiles = 1u << 22 | 1u << 24 | 1u << 25;  // leaf 7, edx: amx-bf16, amx-tile, amx-int8

bool processorHasTiles() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kSavesState) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTiles) == kTiles;
}

bool systemSavesTiles() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

bool ask() {
  return processorHasTiles() && systemSavesTiles() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool hasAmx() {
  static const bool answer = ask();
  return answer;
}
#else
bool hasAmx() { return false; }
#endif

}  // namespace pocket
