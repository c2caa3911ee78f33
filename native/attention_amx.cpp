// The attention kernel for x86-64 with AMX: bf16 tiles for many rows, the AVX-512 bf16 kernel for all else. Runs only
// after amx.h has said yes.
#include "amx_tiles.h"
#include "attention_tiles.h"

namespace pocket {

void attendAmx(const AttendJob& job) { attendInTiles<AmxTiles>(job); }

}  // namespace pocket
