// The job that attention/attention.cpp (compiled for any machine) passes to a kernel (attention/kernels/*.cpp, each
// compiled for one instruction set). Contains pointers and integers only, no container: a file compiled with
// instruction-set flags must not emit an inline function that the linker could use in portable code.
#pragma once

#include <cstdint>

#include "cache/batch.h"
#include "kv/store.h"

namespace pocket {

inline constexpr int kJobRows = 128;     // target query rows of a job; exceeded only if one token has more heads
inline constexpr int kBlockTiles = 16;   // tiles per step of the online softmax
inline constexpr int kBlockLanes = kBlockTiles * kTile;

// The part of a stretch that lies in one tile: lanes [begin, end) hold cells index, index + 1, …
struct Segment {
  int64_t tile = 0;
  int32_t begin = 0;
  int32_t end = 0;
  int32_t index = 0;
  int32_t delta = 0;
};

// Some tokens of one sequence against some of its cells, for the query heads of one kv head.
// A query row is a (token, head) pair, token-major: row = token * group + head of the group.
struct AttendJob {
  KvType type = KvType::kF16;
  int headDim = 0;
  int heads = 0;  // of the model: a token's row stride in q and out, in units of headDim
  int group = 0;  // query heads of this kv head
  float scoreScale = 0;  // the shape's scale times log2(e): scores are taken to base 2
  const float* rope = nullptr;  // (positions, headDim): cosines, then sines

  // True: each row gets the bits that it gets as the only row of its job. False: the fastest method for all rows
  // together.
  bool batchInvariant = false;
  const Row* tokens = nullptr;  // indices strictly ascending
  int tokenCount = 0;
  const float* q = nullptr;  // (tokenCount, heads, headDim), at the first head of the group

  const Segment* segments = nullptr;  // by ascending index
  int segmentCount = 0;
  const void* keys = nullptr;  // of this layer and kv head
  const void* values = nullptr;
  const float* keyScales = nullptr;  // null unless the type is int8
  const float* valueScales = nullptr;
  const float* pairScales = nullptr;  // (headDim), the same

  float* scratch = nullptr;  // scratchFloats(…), aligned to 64 bytes
  // Exactly one of the two is set.
  float* out = nullptr;      // like q; finished rows
  float* partial = nullptr;  // (rows, headDim) weighted sums, (rows) maxima to base 2, (rows) weights
};

// Rotated queries, scores, converted tiles, weighted sums, maxima, weights. Each part keeps the 64-byte alignment.
constexpr int64_t scratchFloats(int64_t rows, int64_t headDim) {
  return rows * headDim * 2 + rows * kBlockLanes + kBlockTiles * kTile * headDim + (rows + 15) / 16 * 16 * 2;
}

constexpr int64_t partialFloats(int64_t rows, int64_t headDim) { return rows * (headDim + 2); }

// One kernel per instruction set. They compute the same and differ in rounding. attendAvx512Bf16 multiplies 16-bit
// numbers (attention/kernels/dot2.h); over f32 pages it calls attendAvx512. attendAmx multiplies bf16 tiles if rows may
// round together (attention/kernels/amx_kernel.h), and calls attendAvx512Bf16 otherwise.
void attendPortable(const AttendJob& job);
void attendAvx2(const AttendJob& job);
void attendAvx512(const AttendJob& job);
void attendAvx512Bf16(const AttendJob& job);
void attendAmx(const AttendJob& job);

}  // namespace pocket
