// How a block-quantised matrix W of [rows, columns] lies in memory for pocket::Linear, and how large it is. The codes
// and scales are the GGUF file's own, only their order differs, so that a kernel reads them front to back. The packer
// in models/ and the kernels here are written from this text; linear/reference.cpp reads it as literally as possible.
//
// Panels of 16 rows of W, panel after panel; rows are padded to a multiple of 16 with zero codes and zero scales.
// Inside a panel records along the columns, record after record, nothing between them.
//
// Codes are unsigned and come in groups of 32 columns x 16 rows. The code of (row n, column k) of a group stands at
// position p = (k / 4) * 64 + n * 4 + (k % 4): eight quads of 64 bytes, each what a dot product of four bytes reads.
//
//   8 bits  512 bytes   byte p holds position p
//   4 bits  256 bytes   byte i: low nibble position i, high nibble position 256 + i
//   5 bits  320 bytes   the low four bits as above; then bit p % 64 of the little-endian 64-bit word p / 64
//   6 bits  384 bytes   the low four bits as above; then 128 bytes, byte i holding the upper two bits of positions
//                       i, 128 + i, 256 + i, 384 + i at bits 0-1, 2-3, 4-5, 6-7
//
// f16 are raw half bits, all numbers little-endian, arrays of 16 have one entry per row of the panel.
//
//   record of 32 columns     16 f16 d · 16 f16 m (q4_1, q5_1) · codes
//     q4_0 d * (code - 8)      q4_1 d * code + m     q5_0 d * (code - 16)    q5_1 d * code + m
//     q8_0 d * (code - 128)    (code = the file's signed byte + 128)
//   record of 256 columns    16 f16 d · 16 f16 dmin (q4_k, q5_k) · scales · 8 x codes of a group
//     q4_k, q5_k   scales = 8 x 16 u8 sc, then 8 x 16 u8 mn (group-major);   d * sc * code - dmin * mn
//     q6_k         scales = 16 x 16 int8 sc, one per 16 columns;             d * sc * (code - 32)
#pragma once

#include <cstddef>
#include <cstdint>

namespace pocket {

enum class BlockFormat : uint8_t { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

constexpr BlockFormat kBlockFormats[] = {BlockFormat::kQ4_0, BlockFormat::kQ4_1, BlockFormat::kQ5_0,
                                         BlockFormat::kQ5_1, BlockFormat::kQ8_0, BlockFormat::kQ4_K,
                                         BlockFormat::kQ5_K, BlockFormat::kQ6_K};
constexpr int kPanelRows = 16;
constexpr int kGroupColumns = 32;
constexpr int kGroupCodes = kPanelRows * kGroupColumns;

// Offsets are bytes from the start of a record.
struct BlockLayout {
  int bits;
  int zero;           // subtracted from a code; 0 where there is a minimum
  bool minimum;       // m or dmin is there
  int groups;         // of 32 columns in a record: 1 or 8
  bool halves;        // a scale per 16 columns
  int scalesAt;       // the 8-bit scales; the end of the f16 arrays
  int codesAt;
  int groupBytes;     // codes of a group
  int recordBytes;

  constexpr int recordColumns() const { return groups * kGroupColumns; }
};

constexpr BlockLayout layoutOf(int bits, int zero, bool minimum, int groups, bool halves) {
  const int scalesAt = minimum ? 64 : 32;
  const int codesAt = scalesAt + (groups == 1 ? 0 : 256);
  const int groupBytes = kGroupCodes / 8 * bits;
  return {bits, zero, minimum, groups, halves, scalesAt, codesAt, groupBytes, codesAt + groups * groupBytes};
}

constexpr BlockLayout layoutOf(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ4_0: return layoutOf(4, 8, false, 1, false);
    case BlockFormat::kQ4_1: return layoutOf(4, 0, true, 1, false);
    case BlockFormat::kQ5_0: return layoutOf(5, 16, false, 1, false);
    case BlockFormat::kQ5_1: return layoutOf(5, 0, true, 1, false);
    case BlockFormat::kQ8_0: return layoutOf(8, 128, false, 1, false);
    case BlockFormat::kQ4_K: return layoutOf(4, 0, true, 8, false);
    case BlockFormat::kQ5_K: return layoutOf(5, 0, true, 8, false);
    case BlockFormat::kQ6_K: return layoutOf(6, 32, false, 8, true);
  }
  return {};
}

constexpr const char* name(BlockFormat format) {
  switch (format) {
    case BlockFormat::kQ4_0: return "q4_0";
    case BlockFormat::kQ4_1: return "q4_1";
    case BlockFormat::kQ5_0: return "q5_0";
    case BlockFormat::kQ5_1: return "q5_1";
    case BlockFormat::kQ8_0: return "q8_0";
    case BlockFormat::kQ4_K: return "q4_k";
    case BlockFormat::kQ5_K: return "q5_k";
    case BlockFormat::kQ6_K: return "q6_k";
  }
  return "unknown";
}

constexpr int64_t panelsOf(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

// Bytes of one panel; columns are a multiple of the record's.
constexpr size_t bytesOfPanel(BlockFormat format, int64_t columns) {
  const BlockLayout layout = layoutOf(format);
  return static_cast<size_t>(columns / layout.recordColumns() * layout.recordBytes);
}

// Bytes of the whole matrix.
constexpr size_t panelBytes(BlockFormat format, int64_t rows, int64_t columns) {
  return bytesOfPanel(format, columns) * static_cast<size_t>(panelsOf(rows));
}

}  // namespace pocket
