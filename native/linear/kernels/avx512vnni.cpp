// The linear kernel for x86-64 with AVX-512 VNNI. Compiled with those flags; call only if cpu/features.h says
// hasAvx512Vnni().
#include "linear/kernels/avx512vnni.h"

namespace pocket {

const LinearKernel kLinearAvx512Vnni = LinearTable<VnniMath>::named("avx512vnni");

}  // namespace pocket
