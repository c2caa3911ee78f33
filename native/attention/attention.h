// Paged attention over stretches, on the CPU. Writes the keys and values of this step to their slots, once, and lets
// every new row attend to all cells of its sequence at or below its own index. The difference between the birth of a
// key and its index is corrected on the query side, once per stretch of equal delta: RoPE scores depend only on
// relative position. Independent of ONNX Runtime and N-API.
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
  // Writes the slots of batch.rows in `layer`, then fills out. Reads no slot outside batch.stretches. The bits of a row
  // depend on its own entry, not on other entries or on the threads; in an entry of at most kDecodeRows rows they are
  // the bits that the row gets alone. Throws BAD_ARGUMENT, before any write, if the batch breaks its contract. Reuses
  // scratch memory: one call at a time.
  virtual void run(const Batch& batch, const AttentionInput& input, const KvLayer& layer,
                   const ParallelFor& parallelFor) = 0;
};

// `rope` outlives the result. `threads` is how many bodies may run at once. Throws BAD_ARGUMENT when the isa
// is not supported here or the shapes do not fit (headDim not a multiple of 16 up to 256, heads not of kvHeads).
std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, Isa isa,
                                         int threads);

// With a kernel of the caller. For tests and benchmarks.
struct AttendJob;
using AttendFunction = void (*)(const AttendJob&);
std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope,
                                         AttendFunction attend, int threads);

// Naive reference in double, for tests. The store must already hold the keys and values of the rows: reads neither
// input.k nor input.v and writes only input.out.
void referenceAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, const Batch& batch,
                        const AttentionInput& input, const KvLayer& layer);

}  // namespace pocket
