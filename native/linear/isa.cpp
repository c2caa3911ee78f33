// Which linear kernel a processor runs, asked of the processor itself.
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "cpu/amx.h"
#include "attention/attention.h"
#include "linear/job.h"

namespace pocket {
namespace {

#ifdef __aarch64__
bool hasDotProduct() {
#ifdef __linux__
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;  // every 64-bit ARM that other systems run Node on
#endif
}
#endif

}  // namespace

const LinearKernel& linearKernelFor(Isa isa) {
#ifdef __x86_64__
  __builtin_cpu_init();
#ifdef POCKET_AMX
  if (isa >= Isa::kAmx && hasAmx()) return linearKernelAmx();
#endif
  if (isa >= Isa::kAvx512 && __builtin_cpu_supports("avx512vnni")) return kLinearAvx512Vnni;
  if (isa >= Isa::kAvx2) return kLinearAvx2;
#endif
#ifdef __aarch64__
  if (hasDotProduct()) return kLinearNeon;
#endif
  static_cast<void>(isa);
  return kLinearPortable;
}

}  // namespace pocket
