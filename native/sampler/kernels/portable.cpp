// The loops of the sampler, compiled for any machine of the architecture; only the dispatch in sampler/kernels/dispatch.cpp
// calls them.
#include "sampler/kernels/body.h"

namespace pocket {

extern const RowLoops kPortableRowLoops;
const RowLoops kPortableRowLoops = {"portable", peaks, weigh, mass, admit, masses};

}  // namespace pocket
