// The linear kernel for x86-64 with AMX: tiles for many rows, the VNNI kernel for all else. Runs only after amx.h has
// said yes.
#include "amx_tiles.h"
#include "linear_avx512vnni.h"
#include "linear_tiles.h"

namespace pocket {

const LinearKernel& linearKernelAmx() {
  static const LinearKernel kernel = TileTable<VnniMath, AmxTiles>::over(kLinearAvx512Vnni, "amx");
  return kernel;
}

}  // namespace pocket
