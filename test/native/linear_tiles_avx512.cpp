// linear_tiles.h with the lanes that linear_amx.cpp gives it and emulated tiles: all of that kernel but its six
// instructions. Compiled with its flags, so no container and no inline function of others may stand here.
#ifdef __x86_64__
#include "emulated_tiles.h"
#include "linear_avx512vnni.h"
#include "linear_tiles.h"

namespace pocket {

// Only where kLinearAvx512Vnni may run.
LinearKernel emulatedTilesAvx512() {
  return TileTable<VnniMath, EmulatedTiles>::over(kLinearAvx512Vnni, "avx512vnni with emulated tiles");
}

}  // namespace pocket
#endif
