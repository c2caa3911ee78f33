// What a thread tells AMX about its eight tiles, as the processor reads it (Intel, Software Developer's Manual, volume 2,
// LDTILECFG). Knows no kernel; each has a configuration of its own.
#pragma once

#include <cstdint>

namespace pocket {

struct alignas(64) TileConfiguration {
  uint8_t palette;
  uint8_t startRow;
  uint8_t reserved[14];
  uint16_t columnBytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileConfiguration) == 64);

}  // namespace pocket
