// The attention kernels that tests run: those of this machine's kinds of processors, and the one over tiles with tiles
// emulated, where the processor has what the rest of that kernel needs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"

namespace scene {

struct Kernel {
  Kernel(pocket::Isa takes) : name(pocket::name(takes)), isa(takes) {}
  Kernel(std::string called, pocket::Isa like, pocket::AttendFunction function)
      : name(std::move(called)), isa(like), own(function) {}

  std::string name;
  pocket::Isa isa;                       // whose arithmetic it is
  pocket::AttendFunction own = nullptr;  // or null: the one that the isa takes
};

const std::vector<Kernel>& attentionKernels();

}  // namespace scene
