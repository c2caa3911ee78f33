// The attention kernel for x86-64 with AVX-512 (F, BW, DQ, VL). Compiled with those flags, so nothing in here may
// run before attention.cpp has asked the processor.
#include "attention_vector16.h"

namespace pocket {

void attendAvx512(const AttendJob& job) { Attend<FloatMath<Vector16>>(job).run(); }

}  // namespace pocket
