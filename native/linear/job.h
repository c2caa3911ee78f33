// The interface between linear/linear.cpp and the kernels: tiles of quantized rows, an unpacked part of a panel, and
// the function table that each linear/kernels/*.cpp provides. Plain structs; the caller owns all memory.
#pragma once

#include "linear/layout.h"

namespace pocket {

enum class Isa : uint8_t;  // cpu/features.h; not included in files with instruction-set flags

// Per group of 32 columns and row, a correction that some formats need in addition to the codes. The integers are the
// initial value of a dot product, so a constant zero point costs nothing.
enum class Extra : uint8_t {
  kZero8,     // int32: -8 * sum of the codes
  kZero16,    // int32: -16 * sum
  kZero128,   // int32: -128 * sum
  kHalves32,  // two int32: -32 * sum of the first and of the last 16
  kMinimum,   // float: scale * sum, to be multiplied by a minimum
};
constexpr int kExtras = 5;
constexpr int wordsOf(Extra extra) { return extra == Extra::kHalves32 ? 2 : 1; }

constexpr Extra extraOf(BlockFormat format) {
  const BlockLayout layout = layoutOf(format);
  if (layout.minimum) return Extra::kMinimum;
  if (layout.halves) return Extra::kHalves32;
  return layout.zero == 8 ? Extra::kZero8 : layout.zero == 16 ? Extra::kZero16 : Extra::kZero128;
}

constexpr int kMaxTileRows = 16;

// Quantized rows of x. Arrays are ordered by group of 32 columns, then by row:
//   codes (groups, rows, 32)   scales (groups, rows)   extra (groups, wordsOf, rows)
// A kernel may read kMaxTileRows rows of codes from each group on, also from the last.
struct RowTile {
  const int8_t* codes = nullptr;
  const float* scales = nullptr;
  const int32_t* extra = nullptr;
  int rows = 0;
};

struct RowTileBuffers {
  int8_t* codes = nullptr;
  float* scales = nullptr;
  int32_t* extras[kExtras] = {};  // null if not needed
};

// Some columns of a panel with one byte per code. Arrays are ordered by group:
//   codes (groups, 512), positions as in linear/layout.h   scales (groups, 16), with halves (groups, 2, 16)
//   minima (groups, 16), added once per unit of x
struct UnpackedPanel {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
  float* minima = nullptr;
};

// Converts the sums of consecutive panels into results, row by row, so that the writes of a row stay in one page.
struct Finish {
  const float* sums = nullptr;    // (panels, rows, 16)
  const float* factor = nullptr;  // (panels, rows, 16): out = silu(sums) * factor; or null: out = sums
  const float* bias = nullptr;    // (lanes) or null
  const float* factorBias = nullptr;
  float* out = nullptr;  // (rows, stride), `lanes` of each row
  int64_t stride = 0;
  int rows = 0;
  int lanes = 0;  // results per row; excludes the padding rows of the last panel
};

// Sums are (rows, 16) f32 and are accumulated. Groups are added in column order, by the same operations in `stream` and
// `multiply`: a row gets the same bits from both.
struct LinearKernel {
  const char* name;
  int tileRows;  // maximum rows of multiply
  int floatRows;  // maximum rows of multiplyFloats
  int streamRows;  // maximum rows of stream
  // x (rows, columns) with `stride` floats between rows.
  void (*quantize)(const float* x, int64_t stride, int rows, int columns, const RowTileBuffers& to);
  // Multiplies a whole panel with few rows; unpacks weights in registers and reads them once.
  void (*stream)(BlockFormat format, const uint8_t* panel, int columns, const RowTile& tile, float* sums);
  // Unpacks `columns` columns, a multiple of the record size, from the start of a record.
  void (*unpack)(BlockFormat format, const uint8_t* record, int columns, const UnpackedPanel& to);
  void (*multiply)(BlockFormat format, const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums);
  // The same in f32: weights (columns, 16), x (columns, rows).
  void (*dequantize)(BlockFormat format, const uint8_t* record, int columns, float* to);
  void (*multiplyFloats)(const float* weights, const float* x, int columns, int rows, float* sums);
  void (*finish)(const Finish& job);
  // Called around calls of multiply, on each thread that makes them; may be null.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;
};

// The fastest kernel within an instruction set that this processor has (linear/linear.cpp).
const LinearKernel& linearKernelFor(Isa isa);

extern const LinearKernel kLinearPortable;
#ifdef __x86_64__
extern const LinearKernel kLinearAvx2;
extern const LinearKernel kLinearAvx512Vnni;
#ifdef POCKET_AMX
const LinearKernel& linearKernelAmx();
#endif
#endif
#ifdef __aarch64__
extern const LinearKernel kLinearNeon;
#endif

}  // namespace pocket
