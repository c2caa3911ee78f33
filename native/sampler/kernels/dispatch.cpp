// Chooses the sampler kernels for the instruction sets of this processor.
#include "sampler/kernels/kernels.h"

namespace pocket {

extern const RowLoops kPortableRowLoops;
#if defined(__x86_64__)
extern const RowLoops kAvx2RowLoops;
extern const RowLoops kAvx512RowLoops;
#endif

const std::vector<const RowLoops*>& supportedRowLoops() {
  static const std::vector<const RowLoops*> supported = [] {
    std::vector<const RowLoops*> kinds{&kPortableRowLoops};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) kinds.push_back(&kAvx2RowLoops);
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (wide) kinds.push_back(&kAvx512RowLoops);
#endif
    return kinds;
  }();
  return supported;
}

}  // namespace pocket
