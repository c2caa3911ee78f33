// Paged attention over stretches, for the CPU. Writes this step's keys and values to their slots, once, and
// lets every new row attend to all cells of its sequence at or below its own index. The difference between
// a key's birth and its index is corrected on the query side, once per stretch of equal delta
// (RoPE scores depend on relative positions only; docs/design.md). Knows neither ONNX Runtime nor N-API.
#pragma once

#include <memory>

#include "attention/rope.h"
#include "cache/batch.h"
#include "cpu/features.h"
#include "cpu/parallel_for.h"
#include "kv/store.h"

namespace pocket {

struct AttentionShape {
  int heads = 0;
  int kvHeads = 0;
  int headDim = 0;
  float scale = 0;  // of the scores, before the softmax
};

// All pointers are f32, row-major, one row per batch row; k before rotation, biases already added.
//   q, out (rows, heads, headDim)     k, v (rows, kvHeads, headDim)
struct AttentionInput {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* out = nullptr;
};

class Attention {
 public:
  virtual ~Attention() = default;
  // Writes the slots of batch.rows in `layer`, then fills out. Reads no slot that is not in batch.stretches.
  // A row's bits depend on its own entry, not on the other entries nor on which threads run; in an entry of kDecodeRows
  // rows or fewer they are those that it gets alone. Throws BAD_ARGUMENT before anything is written when the batch breaks
  // its contract.
  // Keeps its scratch memory between calls: one call at a time.
  virtual void run(const Batch& batch, const AttentionInput& input, const KvLayer& layer,
                   const ParallelFor& parallelFor) = 0;
};

// `rope` outlives the result. `threads` is how many bodies may run at once. Throws BAD_ARGUMENT when the isa
// is not supported here or the shapes do not fit (headDim not a multiple of 16 up to 256, heads not of kvHeads).
std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope,
                                         Isa isa, int threads);

// With a kernel of the caller's. For tests and measurements.
struct AttendJob;
using AttendFunction = void (*)(const AttendJob&);
std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope,
                                         AttendFunction attend, int threads);

// The same result by three plain loops in double, over a store that holds the rows' keys and values already: it
// reads neither input.k nor input.v and writes nothing but input.out. For tests.
void referenceAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope,
                        const Batch& batch, const AttentionInput& input, const KvLayer& layer);

}  // namespace pocket
