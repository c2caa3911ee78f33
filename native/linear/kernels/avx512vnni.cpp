// The linear kernel for x86-64 with AVX-512 and its dot product of four bytes. Runs only after linear/linear.cpp has asked the
// processor.
#include "linear/kernels/avx512vnni.h"

namespace pocket {

const LinearKernel kLinearAvx512Vnni = LinearTable<VnniMath>::named("avx512vnni");

}  // namespace pocket
