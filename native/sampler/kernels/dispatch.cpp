// Selects the sampler's kernels for an instruction set.
#include "cpu/features.h"
#include "sampler/kernels/kernels.h"

namespace pocket {

extern const RowLoops kPortableRowLoops;
#if defined(__x86_64__)
extern const RowLoops kAvx2RowLoops;
extern const RowLoops kAvx512RowLoops;
#endif

const RowLoops& rowLoopsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return kAvx512RowLoops;
  if (isa >= Isa::kAvx2) return kAvx2RowLoops;
#endif
  static_cast<void>(isa);
  return kPortableRowLoops;
}

std::vector<const RowLoops*> supportedRowLoops() {
  std::vector<const RowLoops*> supported;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512})
    if (supports(isa)) supported.push_back(&rowLoopsFor(isa));
  return supported;
}

}  // namespace pocket
