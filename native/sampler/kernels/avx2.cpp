// The loops of the sampler, compiled for AVX2; only the dispatch in sampler/kernels/dispatch.cpp
// calls them.
#include "sampler/kernels/body.h"

namespace pocket {

extern const RowLoops kAvx2RowLoops;
const RowLoops kAvx2RowLoops = {"avx2", peaks, weigh, mass, admit, masses};

}  // namespace pocket
