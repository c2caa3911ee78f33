#include "model.h"

#include <dlfcn.h>

#include <exception>
#include <mutex>

#include "error.h"
#include "ort_api.h"

namespace pocket {

namespace {

// What the operator's kernels read while a run is on: set by Model::run, the same for all layers.
struct Current {
  const Batch* batch = nullptr;
  KvStore* store = nullptr;
  Attention* attention = nullptr;
};

// pocket::PagedAttention (q, k, v) -> out, all f32 with one row per batch row; attribute `layer`.
struct PagedAttentionOp : ort::OrtCustomOp {
  PagedAttentionOp();

  const ort::OrtTable* table = nullptr;
  Current current;
  AttentionShape shape;
  int layers = 0;
};

struct PagedAttentionKernel {
  const PagedAttentionOp* op;
  int layer;
};

std::string take(const ort::OrtTable& table, ort::OrtStatus* status) {
  std::string message = table.GetErrorMessage(status);
  table.ReleaseStatus(status);
  return message;
}

void check(const ort::OrtTable& table, ort::OrtStatus* status) {
  if (status != nullptr) throw Error("RUNTIME_FAILED", "ONNX Runtime: " + take(table, status));
}

// ONNX Runtime's pool as a ParallelFor. A body must not throw through the library, so the first exception
// waits until all bodies are done.
class RuntimeParallel {
 public:
  RuntimeParallel(const ort::OrtTable& table, const ort::OrtKernelContext* context)
      : table_(table), context_(context) {}

  void run(int count, const std::function<void(int)>& body) {
    Loop loop{&body, nullptr, {}};
    check(table_, table_.KernelContext_ParallelFor(context_, &RuntimeParallel::one,
                                                   static_cast<size_t>(count), static_cast<size_t>(count), &loop));
    if (loop.failure) std::rethrow_exception(loop.failure);
  }

 private:
  struct Loop {
    const std::function<void(int)>* body;
    std::exception_ptr failure;
    std::mutex mutex;
  };

  static void one(void* user, size_t index) {
    Loop& loop = *static_cast<Loop*>(user);
    try {
      (*loop.body)(static_cast<int>(index));
    } catch (...) {
      std::lock_guard<std::mutex> lock(loop.mutex);
      if (!loop.failure) loop.failure = std::current_exception();
    }
  }

  const ort::OrtTable& table_;
  const ort::OrtKernelContext* context_;
};

// Input `index` as f32; throws when it has not rows * width elements.
const float* input(const ort::OrtTable& table, ort::OrtKernelContext* context, size_t index, size_t elements) {
  const ort::OrtValue* value = nullptr;
  check(table, table.KernelContext_GetInput(context, index, &value));
  ort::OrtTensorTypeAndShapeInfo* info = nullptr;
  check(table, table.GetTensorTypeAndShape(value, &info));
  size_t count = 0;
  ort::OrtStatus* status = table.GetTensorShapeElementCount(info, &count);
  table.ReleaseTensorTypeAndShapeInfo(info);
  check(table, status);
  if (count != elements) {
    throw error("RUNTIME_FAILED", "PagedAttention input %zu has %zu elements; the batch needs %zu.", index, count,
                elements);
  }
  void* data = nullptr;
  check(table, table.GetTensorMutableData(const_cast<ort::OrtValue*>(value), &data));
  return static_cast<const float*>(data);
}

void compute(const PagedAttentionKernel& kernel, ort::OrtKernelContext* context) {
  const PagedAttentionOp& op = *kernel.op;
  const ort::OrtTable& table = *op.table;
  const Batch& batch = *op.current.batch;
  const size_t rows = batch.rows.size();
  const size_t queryWidth = static_cast<size_t>(op.shape.heads) * op.shape.headDim;
  const size_t keyWidth = static_cast<size_t>(op.shape.kvHeads) * op.shape.headDim;
  AttentionInput tensors;
  tensors.q = input(table, context, 0, rows * queryWidth);
  tensors.k = input(table, context, 1, rows * keyWidth);
  tensors.v = input(table, context, 2, rows * keyWidth);
  const int64_t dims[] = {static_cast<int64_t>(rows), static_cast<int64_t>(queryWidth)};
  ort::OrtValue* output = nullptr;
  check(table, table.KernelContext_GetOutput(context, 0, dims, 2, &output));
  void* out = nullptr;
  check(table, table.GetTensorMutableData(output, &out));
  tensors.out = static_cast<float*>(out);
  RuntimeParallel parallel(table, context);
  op.current.attention->run(
      batch, tensors, op.current.store->layer(kernel.layer),
      [&parallel](int count, const std::function<void(int)>& body) { parallel.run(count, body); });
}

PagedAttentionOp::PagedAttentionOp() {
  GetName = [](const OrtCustomOp*) { return "PagedAttention"; };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputType = [](const OrtCustomOp*, size_t) { return ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return 3; };
  GetOutputType = [](const OrtCustomOp*, size_t) { return ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return ort::INPUT_OUTPUT_REQUIRED; };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return ort::INPUT_OUTPUT_REQUIRED; };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return ort::OrtMemTypeDefault; };
  CreateKernelV2 = [](const OrtCustomOp* self, const ort::OrtApi*, const ort::OrtKernelInfo* info,
                      void** kernel) -> ort::OrtStatus* {
    const auto* op = static_cast<const PagedAttentionOp*>(self);
    int64_t layer = -1;
    if (ort::OrtStatus* status = op->table->KernelInfoGetAttribute_int64(info, "layer", &layer)) return status;
    if (layer < 0 || layer >= op->layers) {
      return op->table->CreateStatus(ort::ORT_INVALID_GRAPH, "PagedAttention: attribute layer is out of range");
    }
    *kernel = new PagedAttentionKernel{op, static_cast<int>(layer)};
    return nullptr;
  };
  KernelComputeV2 = [](void* kernel, ort::OrtKernelContext* context) -> ort::OrtStatus* {
    const auto& self = *static_cast<PagedAttentionKernel*>(kernel);
    try {
      compute(self, context);
      return nullptr;
    } catch (const std::exception& failure) {
      return self.op->table->CreateStatus(ort::ORT_RUNTIME_EXCEPTION, failure.what());
    }
  };
  KernelDestroy = [](void* kernel) { delete static_cast<PagedAttentionKernel*>(kernel); };
}

}  // namespace

// Everything the library hands out, released in reverse order.
struct Model::Runtime {
  ort::OrtTable table;
  std::string version;
  ModelOptions options;
  KvStore* store = nullptr;
  std::unique_ptr<Rope> rope;
  std::unique_ptr<Attention> attention;
  PagedAttentionOp op;
  ort::OrtEnv* env = nullptr;
  ort::OrtSessionOptions* sessionOptions = nullptr;
  ort::OrtCustomOpDomain* domain = nullptr;
  ort::OrtSession* session = nullptr;
  ort::OrtMemoryInfo* memory = nullptr;
  ort::OrtValue* logits = nullptr;

  void openLibrary();
  void prepareAttention();
  void loadGraph();
  void dropLogits() {
    if (logits != nullptr) table.ReleaseValue(logits);
    logits = nullptr;
  }

  ~Runtime() {
    dropLogits();
    if (session != nullptr) table.ReleaseSession(session);
    if (domain != nullptr) table.ReleaseCustomOpDomain(domain);
    if (sessionOptions != nullptr) table.ReleaseSessionOptions(sessionOptions);
    if (memory != nullptr) table.ReleaseMemoryInfo(memory);
    if (env != nullptr) table.ReleaseEnv(env);
  }
};

// The library stays open for the life of the process: its thread pools and statics do not survive dlclose.
void Model::Runtime::openLibrary() {
  void* library = dlopen(options.runtime.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error("RUNTIME_MISSING",
                "ONNX Runtime could not be opened from " + options.runtime + ": " + dlerror() + ".");
  }
  const auto base = reinterpret_cast<ort::OrtGetApiBaseFunction>(dlsym(library, ort::kOrtGetApiBaseSymbol));
  const ort::OrtApi* slots = base == nullptr ? nullptr : base()->GetApi(ort::kApiVersion);
  if (slots == nullptr) {
    throw error("RUNTIME_MISSING", "ONNX Runtime could not be opened from %s: it has no API version %u.",
                options.runtime.c_str(), ort::kApiVersion);
  }
  table = ort::OrtTable(slots);
  version = base()->GetVersionString();
}

void Model::Runtime::prepareAttention() {
  rope = std::make_unique<Rope>(options.headDim, options.context, options.ropeBase);
  op.table = &table;
  op.layers = options.layers;
  op.shape.heads = options.heads;
  op.shape.kvHeads = options.kvHeads;
  op.shape.headDim = options.headDim;
  op.shape.scale = 1.0f / std::sqrt(static_cast<float>(options.headDim));
  attention = makeAttention(op.shape, store->shape(), *rope, options.isa, options.threads);
}

void Model::Runtime::loadGraph() {
  // A failed run comes back as a status; the library's own log lines would only repeat it.
  check(table, table.CreateEnv(ort::ORT_LOGGING_LEVEL_FATAL, "pocket", &env));
  check(table, table.CreateSessionOptions(&sessionOptions));
  check(table, table.SetIntraOpNumThreads(sessionOptions, options.threads));
  check(table, table.SetInterOpNumThreads(sessionOptions, 1));
  check(table, table.SetSessionExecutionMode(sessionOptions, ort::ORT_SEQUENTIAL));
  check(table, table.SetSessionGraphOptimizationLevel(sessionOptions, ort::ORT_ENABLE_BASIC));
  // Every step has its own number of rows, so a remembered allocation pattern never fits the next one.
  check(table, table.DisableMemPattern(sessionOptions));
  check(table, table.CreateCustomOpDomain("pocket", &domain));
  check(table, table.CustomOpDomain_Add(domain, &op));
  check(table, table.AddCustomOpDomain(sessionOptions, domain));
  check(table, table.CreateCpuMemoryInfo(ort::OrtArenaAllocator, ort::OrtMemTypeDefault, &memory));
  check(table, table.CreateSession(env, options.graph.c_str(), sessionOptions, &session));
}

Model::Model(const ModelOptions& options, KvStore& store) : runtime_(std::make_unique<Runtime>()) {
  Runtime& runtime = *runtime_;
  runtime.options = options;
  runtime.store = &store;
  runtime.openLibrary();
  runtime.prepareAttention();
  runtime.loadGraph();
}

Model::~Model() = default;

const std::string& Model::runtimeVersion() const { return runtime_->version; }

namespace {

// A tensor over memory of ours, released with the scope.
class Tensor {
 public:
  Tensor(const ort::OrtTable& table, const ort::OrtMemoryInfo* memory, const std::vector<int64_t>& values)
      : table_(table) {
    const int64_t dims[] = {static_cast<int64_t>(values.size())};
    check(table, table.CreateTensorWithDataAsOrtValue(memory, const_cast<int64_t*>(values.data()),
                                                      values.size() * sizeof(int64_t), dims, 1,
                                                      ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &value_));
  }
  ~Tensor() {
    if (value_ != nullptr) table_.ReleaseValue(value_);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  const ort::OrtValue* get() const { return value_; }

 private:
  const ort::OrtTable& table_;
  ort::OrtValue* value_ = nullptr;
};

}  // namespace

float* Model::run(const Batch& batch, const std::vector<int64_t>& tokens, const std::vector<int64_t>& wanted) {
  Runtime& runtime = *runtime_;
  const ort::OrtTable& table = runtime.table;
  runtime.dropLogits();
  runtime.op.current = {&batch, runtime.store, runtime.attention.get()};
  const Tensor tokenTensor(table, runtime.memory, tokens);
  const Tensor rowTensor(table, runtime.memory, wanted);
  const char* inputNames[] = {"tokens", "rows"};
  const ort::OrtValue* inputs[] = {tokenTensor.get(), rowTensor.get()};
  const char* outputNames[] = {"logits"};
  check(table, table.Run(runtime.session, nullptr, inputNames, inputs, 2, outputNames, 1, &runtime.logits));
  void* data = nullptr;
  check(table, table.GetTensorMutableData(runtime.logits, &data));
  return static_cast<float*>(data);
}

}  // namespace pocket
