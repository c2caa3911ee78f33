// The linear kernels that tests run: those of this machine's kinds of processors, and the kernel over tiles with tiles
// emulated, which every machine has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "linear/linear.h"

namespace scene {

struct Kernel {
  std::string name;
  pocket::Isa isa = pocket::Isa::kPortable;
  const pocket::LinearKernel* own = nullptr;  // or null: the one that the isa takes

  std::unique_ptr<pocket::Linear> make(int threads) const {
    return own != nullptr ? pocket::makeLinear(*own, threads) : pocket::makeLinear(isa, threads);
  }
};

const std::vector<Kernel>& linearKernels();

}  // namespace scene
