// The loops of the sampler, compiled for AVX-512; only the dispatch in sampler/kernels/dispatch.cpp
// calls them.
#include "sampler/kernels/body.h"

namespace pocket {

extern const RowLoops kAvx512RowLoops;
const RowLoops kAvx512RowLoops = {"avx512", peaks, weigh, mass, admit, masses};

}  // namespace pocket
