// pocket::PagedAttention as an operator of ONNX Runtime: hands a node's tensors, the step's batch and the KV store to
// attention/attention.h. The only way in which a graph reaches the KV pages. No arithmetic here.
//
//   PagedAttention (q, k, v) -> out, all f32 with one row per batch row
//     attributes  layer; pair_scales, by which the store divides the layer's keys (kv/store.h)
#pragma once

#include "attention/attention.h"
#include "cache/batch.h"
#include "kv/store.h"
#include "runtime/ort_kernel.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"

namespace pocket {

struct PagedAttentionOp : ort::OrtCustomOp {
  PagedAttentionOp();

  const ort::OrtTable* table = nullptr;
  ThreadPool* threadPool = nullptr;  // null: the session's threads
  Profiler* profiler = nullptr;
  KvStore* store = nullptr;
  Attention* attention = nullptr;
  const Batch* batch = nullptr;  // of the run in progress; the same for all layers
  AttentionShape shape;
  int layers = 0;
};

}  // namespace pocket
