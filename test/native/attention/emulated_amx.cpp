// attention/kernels/amx_kernel.h with emulated tiles: all of attention/kernels/amx.cpp but its instructions. Compiled with its flags, so no
// container and no inline function of others may stand here.
#ifdef __x86_64__
#include "attention/kernels/amx_kernel.h"
#include "support/emulated_tiles.h"

namespace pocket {

// Only where attendAvx512Bf16 may run.
void attendEmulatedTiles(const AttendJob& job) { attendWithTiles<EmulatedTiles>(job); }

}  // namespace pocket
#endif
