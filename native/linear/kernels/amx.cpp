// The linear kernel for x86-64 with AMX: tiles for many rows, the VNNI kernel for everything else. Compiled with AMX
// flags; call only if cpu/features.h supports Isa::kAmx.
#include "cpu/amx_tiles.h"
#include "linear/kernels/amx_kernel.h"
#include "linear/kernels/avx512vnni.h"

namespace pocket {

const LinearKernel& linearKernelAmx() {
  static const LinearKernel kernel = AmxLinearTable<VnniMath, AmxTiles>::basedOn(kLinearAvx512Vnni, "amx");
  return kernel;
}

}  // namespace pocket
