// linear/kernels/amx_kernel.h with the lanes that linear/kernels/amx.cpp gives it and emulated tiles: all of that kernel but its six
// instructions. Compiled with its flags, so no container and no inline function of others may stand here.
#ifdef __x86_64__
#include "linear/kernels/amx_kernel.h"
#include "linear/kernels/avx512vnni.h"
#include "support/emulated_tiles.h"

namespace pocket {

// Only where kLinearAvx512Vnni may run.
LinearKernel emulatedTilesAvx512() {
  return AmxLinearTable<VnniMath, EmulatedTiles>::basedOn(kLinearAvx512Vnni, "avx512vnni with emulated tiles");
}

}  // namespace pocket
#endif
