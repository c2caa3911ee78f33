// The attention kernels that tests run: those of this machine's kinds of processors, and the one over tiles with tiles
// emulated, where the processor has what the rest of that kernel needs.
#pragma once

#include <string>
#include <vector>

#include "attention.h"

namespace scene {

struct Kernel {
  std::string name;
  pocket::Isa isa = pocket::Isa::kPortable;  // what its arithmetic is that of
  pocket::AttendFunction own = nullptr;      // or null: the one that the isa takes
};

const std::vector<Kernel>& attentionKernels();

}  // namespace scene
