// The attention kernel for x86-64 with AMX: bf16 tiles for many rows, the AVX-512 bf16 kernel for all else. Runs only
// after cpu/features.h has said yes.
#include "cpu/amx_tiles.h"
#include "attention/kernels/amx_kernel.h"

namespace pocket {

void attendAmx(const AttendJob& job) { attendWithTiles<AmxTiles>(job); }

}  // namespace pocket
