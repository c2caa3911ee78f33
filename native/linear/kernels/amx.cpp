// The linear kernel for x86-64 with AMX: tiles for many rows, the VNNI kernel for all else. Runs only after cpu/features.h has
// said yes.
#include "cpu/amx_tiles.h"
#include "linear/kernels/avx512vnni.h"
#include "linear/kernels/amx_kernel.h"

namespace pocket {

const LinearKernel& linearKernelAmx() {
  static const LinearKernel kernel = AmxLinearTable<VnniMath, AmxTiles>::basedOn(kLinearAvx512Vnni, "amx");
  return kernel;
}

}  // namespace pocket
