// The attention kernel for x86-64 with AMX. Compiled with AMX flags; call only if cpu/features.h supports Isa::kAmx.
#include "attention/kernels/amx_kernel.h"
#include "cpu/amx_tiles.h"

namespace pocket {

void attendAmx(const AttendJob& job) { attendWithTiles<AmxTiles>(job); }

}  // namespace pocket
