// The attention kernel for x86-64 with AVX-512 (F, BW, DQ, VL). Compiled with those flags; call only if cpu/features.h
// supports Isa::kAvx512.
#include "attention/kernels/vector16.h"

namespace pocket {

void attendAvx512(const AttendJob& job) { Attend<Vector16>(job).run(); }

}  // namespace pocket
