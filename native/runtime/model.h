// The graph and the runtime under it: opens ONNX Runtime's library, loads the graph with its memory-mapped
// weights, and registers our operators: pocket::PagedAttention, through which the graph reaches the pages, and
// pocket::Linear and pocket::Embedding (runtime/linear_op.h), which read the weights where they are mapped and run on a team
// of threads. It knows tokens in and logits out; which cells exist is the cache's business and arrives as a Batch.
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
  std::string graph;    // path of the .onnx file; external weights lie beside it
  int layers = 0;
  int heads = 0;
  int kvHeads = 0;
  int headDim = 0;
  int vocab = 0;
  int context = 0;
  double ropeBase = 0;
  int threads = 1;
  Isa isa = Isa::kPortable;
  AttendFunction attend = nullptr;  // or null: the isa's kernel of attention. For measurements.
};

class Model {
 public:
  // Throws RUNTIME_MISSING (library), RUNTIME_FAILED (graph, with the runtime's sentence), BAD_ARGUMENT.
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
  // Where runs spent their time: `graph`, the whole of a run inside the runtime; in it each node of ours, by its name; and
  // in those `norms`, norms with residual sums in front of linear layers. Not to be read during a run. Whoever has more
  // to time adds parts of its own.
  Parts& parts();
  const Parts& parts() const;

 private:
  struct Runtime;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace pocket
