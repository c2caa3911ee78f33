// A loaded graph: opens ONNX Runtime's library, creates a session over memory-mapped weights, and registers the
// operators that the graph names: pocket::PagedAttention (runtime/attention_op.h), pocket::Linear and pocket::Embedding
// (runtime/linear_op.h). Tokens in, logits out. Which cells exist is decided by the cache and arrives as a Batch.
//
// Device seam: another device replaces the allocator and the KV store (kv/store.h), attention (attention/attention.h)
// and the linear layers (linear/linear.h). The operators call those three through plain pointers; cache, sampler and
// runner do not change.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "cache/batch.h"
#include "kv/store.h"
#include "runtime/profiler.h"

namespace pocket {

struct ModelOptions {
  std::string runtime;  // path of libonnxruntime
  std::string graph;  // path of the .onnx file; external weights are in the same folder
  int layers = 0;
  int heads = 0;
  int kvHeads = 0;
  int headDim = 0;
  int vocab = 0;
  int context = 0;
  double ropeBase = 0;
  int threads = 1;
  Isa isa = Isa::kPortable;
  AttendFunction attend = nullptr;  // replaces the isa's attention kernel; for measurements
};

class Model {
 public:
  // Throws RUNTIME_MISSING (library), RUNTIME_FAILED (graph, with the runtime's message), BAD_ARGUMENT.
  // The store outlives the model.
  Model(const ModelOptions& options, KvStore& store);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Computes the batch's rows: writes their keys and values to the store and returns the logits of `wanted`
  // (row numbers of the batch) as (wanted.size(), vocab), writable, valid until the next run. One call at a
  // time, on any thread. A run that throws (RUNTIME_FAILED) may have written to the batch's own slots only.
  float* run(const Batch& batch, const std::vector<int64_t>& tokens, const std::vector<int64_t>& wanted);

  const std::string& runtimeVersion() const;
  // `graph` is a whole run of the session; within it one entry per operator node, by the name of the node; within those
  // `norms`, the norms and residual sums in front of linear layers. Callers may add entries. Not during a run.
  Profiler& profiler();
  const Profiler& profiler() const;

 private:
  struct Runtime;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace pocket
