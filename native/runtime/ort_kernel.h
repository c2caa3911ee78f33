// What our custom operators need from ONNX Runtime: statuses as exceptions and back, tensors as pointers
// with a checked size, threads as a ParallelFor (the library's, or our thread pool), and the one frame in which nodes are
// made, run, timed and ended. It knows no operator. Only what is compiled into the addon includes it; the kernels behind
// the operators do not know ONNX Runtime.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "error.h"
#include "runtime/ort_api.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"

namespace pocket {

// Throws RUNTIME_FAILED with the library's sentence; releases the status.
void check(const ort::OrtTable& table, ort::OrtStatus* status);

// One run of one node. Everything throws RUNTIME_FAILED.
class NodeRun {
 public:
  // With a threadPool `parallel` uses its threads instead of the session's.
  NodeRun(const ort::OrtTable& table, ort::OrtKernelContext* context, ThreadPool* threadPool = nullptr)
      : table_(table), context_(context), threadPool_(threadPool) {}

  // Data of an input whose size was checked before, null where an optional one was left out.
  const void* data(size_t index) const;
  // Elements of an input that is there.
  size_t elements(size_t index) const;
  // As data, after comparing the size; `what` names the input in the sentence.
  const void* checked(size_t index, size_t elements, const char* what) const;
  // The f32 output `index` as (rows, columns), for writing.
  float* output(size_t index, int64_t rows, int64_t columns) const;

  // Runs body(0) … body(count - 1). A body must not throw through the library, so the first exception waits until all
  // bodies are done.
  void parallel(int count, const std::function<void(int)>& body) const;

 private:
  const ort::OrtValue* input(size_t index) const;

  const ort::OrtTable& table_;
  ort::OrtKernelContext* context_;
  ThreadPool* threadPool_;
};

// Attribute of a node that is being made. Throws RUNTIME_FAILED when it is missing or outside [low, high].
int64_t attribute(const ort::OrtTable& table, const ort::OrtKernelInfo* info, const char* name, int64_t low,
                  int64_t high);

// The same for an attribute of floats; throws when it is missing.
std::vector<float> floats(const ort::OrtTable& table, const ort::OrtKernelInfo* info, const char* name);

// Runs `body` and turns what it throws into a status for the library.
template <typename Body>
ort::OrtStatus* guarded(const ort::OrtTable& table, const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& failure) {
    return table.CreateStatus(ort::ORT_RUNTIME_EXCEPTION, failure.what());
  } catch (...) {
    return table.CreateStatus(ort::ORT_RUNTIME_EXCEPTION, "an operator threw something that is no exception");
  }
}

// Name of a node that is being made, as the graph has it.
std::string nodeName(const ort::OrtTable& table, const ort::OrtKernelInfo* info);

// Members of OrtCustomOp that all our operators share: CPU, all outputs f32, all in the default memory.
void fillCommon(ort::OrtCustomOp& op);

// The kernel of a node and its profile entry, which has the node's name.
template <typename Kernel>
struct ProfiledKernel {
  template <typename Op>
  ProfiledKernel(const Op& op, const ort::OrtKernelInfo* info)
      : table(*op.table), entry(op.profiler->add(nodeName(*op.table, info))), kernel(op, info) {}

  const ort::OrtTable& table;
  ProfileEntry& entry;
  Kernel kernel;
};

// Makes, runs and ends kernels of type `Kernel`, which has (op, info) as constructor and run(context), for an operator of
// type `Op`, which has `table` and `profiler`.
template <typename Op, typename Kernel>
void fillLife(Op& op) {
  op.CreateKernelV2 = [](const ort::OrtCustomOp* self, const ort::OrtApi*, const ort::OrtKernelInfo* info,
                         void** kernel) -> ort::OrtStatus* {
    const auto& made = *static_cast<const Op*>(self);
    return guarded(*made.table, [&] { *kernel = new ProfiledKernel<Kernel>(made, info); });
  };
  op.KernelComputeV2 = [](void* kernel, ort::OrtKernelContext* context) -> ort::OrtStatus* {
    auto& self = *static_cast<ProfiledKernel<Kernel>*>(kernel);
    const ScopedTimer timed(self.entry);
    return guarded(self.table, [&] { self.kernel.run(context); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<ProfiledKernel<Kernel>*>(kernel); };
}

}  // namespace pocket
