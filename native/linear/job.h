// What linear/linear.cpp and the kernels tell each other: rows quantized to eight bits in tiles, a stretch of a panel taken
// apart, and the table of functions that a linear_<isa>.cpp offers. Plain structs; pointers belong to the caller.
#pragma once

#include "linear/layout.h"

namespace pocket {

enum class Isa : uint8_t;  // cpu/features.h, whose inline functions stay out of files with flags of their own

// What a tile of rows brings for weights of some formats beside its codes, per group of 32 columns and row. Integers
// are what a sum of products starts at, so that a constant zero point costs nothing.
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

// Some rows of x, quantized. Arrays go on by group of 32 columns; within a group row after row:
//   codes (groups, rows, 32)   scales (groups, rows)   extra (groups, wordsOf, rows)
// Of codes, kMaxTileRows rows may be read from each group on, also where they are the last.
struct RowTile {
  const int8_t* codes = nullptr;
  const float* scales = nullptr;
  const int32_t* extra = nullptr;
  int rows = 0;
};

struct RowTileBuffers {
  int8_t* codes = nullptr;
  float* scales = nullptr;
  int32_t* extras[kExtras] = {};  // null where nobody asks
};

// Columns of a panel with a byte per code. Arrays go on by group:
//   codes (groups, 512), positions as in linear/layout.h   scales (groups, 16), with halves (groups, 2, 16)
//   minima (groups, 16), what is added per unit of x
struct UnpackedPanel {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
  float* minima = nullptr;
};

// Turns the sums of neighbouring panels into results, row by row, so that a row's lie in one page.
struct Finish {
  const float* sums = nullptr;    // (panels, rows, 16)
  const float* factor = nullptr;  // (panels, rows, 16): out = silu(sums) * factor; or null: out = sums
  const float* bias = nullptr;    // (lanes) or null
  const float* factorBias = nullptr;
  float* out = nullptr;  // (rows, stride), `lanes` of each row
  int64_t stride = 0;
  int rows = 0;
  int lanes = 0;  // results per row; the last panel may have some that nobody wants
};

// Sums are (rows, 16) f32 and are added to. Groups are added in the order of columns, by the same operations in
// `stream` and `multiply`, so a row has the same bits whichever ran.
struct LinearKernel {
  const char* name;
  int tileRows;    // rows that multiply takes at most
  int floatRows;   // rows that multiplyFloats takes at most
  int streamRows;  // rows that stream takes at most
  // x (rows, columns) with `stride` floats between rows.
  void (*quantize)(const float* x, int64_t stride, int rows, int columns, const RowTileBuffers& to);
  // A whole panel against few rows, weights taken apart in registers and read once.
  void (*stream)(BlockFormat format, const uint8_t* panel, int columns, const RowTile& tile, float* sums);
  // `columns` from a record's first one, a multiple of the record's.
  void (*unpack)(BlockFormat format, const uint8_t* record, int columns, const UnpackedPanel& to);
  void (*multiply)(BlockFormat format, const UnpackedPanel& panel, int columns, const RowTile& tile, float* sums);
  // The same in f32: weights (columns, 16), x (columns, rows).
  void (*dequantize)(BlockFormat format, const uint8_t* record, int columns, float* to);
  void (*multiplyFloats)(const float* weights, const float* x, int columns, int rows, float* sums);
  void (*finish)(const Finish& job);
  // Around calls of multiply, on each thread that makes them; null where nothing is to be done.
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
