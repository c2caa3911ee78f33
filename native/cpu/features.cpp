#include "cpu/features.h"

#include "error.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(POCKET_AMX) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pocket {

namespace {

struct NamedIsa {
  const char* name;
  Isa isa;
};

// The first name of a value is the one that is reported. avx512vnni is what the linear kernels of kAvx512 are called.
constexpr NamedIsa kNames[] = {{"portable", Isa::kPortable},
                               {"neon", Isa::kNeon},
                               {"avx2", Isa::kAvx2},
                               {"avx512", Isa::kAvx512},
                               {"avx512vnni", Isa::kAvx512},
                               {"avx512bf16", Isa::kAvx512Bf16},
                               {"amx", Isa::kAmx}};

#if defined(POCKET_AMX) && defined(__linux__)
constexpr unsigned kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of arch_prctl
constexpr unsigned kTileData = 18;               // component number of the tile registers in the saved state
constexpr uint64_t kTileState = 3u << 17;        // bits of XCR0: configuration and data
constexpr unsigned kOsXsave = 1u << 27;          // leaf 1, ecx; without it xgetbv is an illegal instruction
constexpr unsigned kTiles = 1u << 22 | 1u << 24 | 1u << 25;  // leaf 7, edx: amx-bf16, amx-tile, amx-int8

bool processorHasTiles() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsXsave) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTiles) == kTiles;
}

bool systemSavesTiles() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

// Linux reserves the 8 KiB per thread that tiles need only for processes that ask.
bool hasAmx() {
  static const bool granted =
      processorHasTiles() && systemSavesTiles() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}
#else
// Untested outside Linux; or the compiler knows no tiles, so that this build has no kernel for them.
bool hasAmx() { return false; }
#endif

}  // namespace

const char* name(Isa isa) {
  for (const NamedIsa& known : kNames)
    if (known.isa == isa) return known.name;
  return "unknown";
}

#if defined(__x86_64__)
bool hasAvx512Vnni() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vnni");
}

bool supports(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kPortable: return true;
    case Isa::kNeon: return false;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return supports(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::kAvx512Bf16: return supports(Isa::kAvx512) && __builtin_cpu_supports("avx512bf16") && hasAvx512Vnni();
    case Isa::kAmx: return supports(Isa::kAvx512Bf16) && hasAmx();
  }
  return false;
}
#else
bool hasAvx512Vnni() { return false; }

bool supports(Isa isa) {
  if (isa == Isa::kPortable) return true;
#if defined(__aarch64__) && defined(__linux__)
  return isa == Isa::kNeon && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__aarch64__)
  return isa == Isa::kNeon;  // every 64-bit ARM that other systems run Node on has the dot product
#else
  return false;
#endif
}
#endif

std::vector<Isa> supportedIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kNeon, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx})
    if (supports(isa)) isas.push_back(isa);
  return isas;
}

Isa isaNamed(const std::string& wanted) {
  if (wanted.empty() || wanted == "auto") return supportedIsas().back();
  for (const NamedIsa& known : kNames)
    if (wanted == known.name && supports(known.isa)) return known.isa;
  std::string have;
  for (const Isa isa : supportedIsas()) have += std::string(have.empty() ? "" : ", ") + name(isa);
  throw error("BAD_ARGUMENT", "isa is auto or one that this machine has (%s), not %s.", have.c_str(), wanted.c_str());
}

void requireSupported(Isa isa) {
  if (!supports(isa)) throw error("BAD_ARGUMENT", "This machine cannot run the %s kernels.", name(isa));
}

}  // namespace pocket
