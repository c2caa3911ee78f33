#include "runtime/model.h"

#include <dlfcn.h>

#include <cmath>
#include <optional>

#include "error.h"
#include "linear/linear.h"
#include "runtime/attention_op.h"
#include "runtime/linear_op.h"
#include "runtime/mapped_file.h"
#include "runtime/ort_kernel.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"

namespace pocket {

namespace {

// Name of the weights file in the folder of the graph, as models/import.ts writes it.
constexpr const char* kWeightsFile = "weights.bin";

}  // namespace

// The session and what it needs. Objects of the library are released in reverse order of creation.
struct Model::Runtime {
  ort::OrtTable table;
  std::string version;
  ModelOptions options;
  KvStore* store = nullptr;
  Profiler profiler;
  ProfileEntry& graph = profiler.add("graph");
  ProfileEntry& norms = profiler.add("norms");
  std::unique_ptr<Rope> rope;
  std::unique_ptr<Attention> attention;
  std::unique_ptr<Linear> linear;
  PagedAttentionOp attentionOp;
  LinearOp linearOp;
  EmbeddingOp embeddingOp;
  std::unique_ptr<ThreadPool> threadPool;
  std::unique_ptr<MappedFile> weights;
  ort::OrtEnv* env = nullptr;
  ort::OrtSessionOptions* sessionOptions = nullptr;
  ort::OrtCustomOpDomain* domain = nullptr;
  ort::OrtSession* session = nullptr;
  ort::OrtMemoryInfo* memory = nullptr;
  ort::OrtValue* logits = nullptr;

  void openLibrary();
  void prepareAttention();
  void prepareLinear();
  void loadGraph();
  void mapWeights();
  void releaseLogits() {
    if (logits != nullptr) table.ReleaseValue(logits);
    logits = nullptr;
  }

  ~Runtime() {
    threadPool.reset();  // its threads may still prefetch ranges that nodes own
    releaseLogits();
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
    throw Error("RUNTIME_MISSING", "ONNX Runtime could not be opened from " + options.runtime + ": " + dlerror() + ".");
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
  attentionOp.table = &table;
  attentionOp.profiler = &profiler;
  attentionOp.store = store;
  attentionOp.layers = options.layers;
  attentionOp.shape.heads = options.heads;
  attentionOp.shape.kvHeads = options.kvHeads;
  attentionOp.shape.headDim = options.headDim;
  attentionOp.shape.scale = 1.0f / std::sqrt(static_cast<float>(options.headDim));
  attention = options.attend != nullptr
                  ? makeAttention(attentionOp.shape, store->shape(), *rope, options.attend, options.threads)
                  : makeAttention(attentionOp.shape, store->shape(), *rope, options.isa, options.threads);
  attentionOp.attention = attention.get();
}

void Model::Runtime::prepareLinear() {
  linear = makeLinear(options.isa, options.threads);
  linearOp.table = embeddingOp.table = &table;
  linearOp.profiler = embeddingOp.profiler = &profiler;
  linearOp.norms = &norms;
  linearOp.linear = linear.get();
}

void Model::Runtime::loadGraph() {
  // Errors are reported as statuses; the library's log lines would repeat them.
  check(table, table.CreateEnv(ort::ORT_LOGGING_LEVEL_FATAL, "pocket", &env));
  check(table, table.CreateSessionOptions(&sessionOptions));
  check(table, table.SetIntraOpNumThreads(sessionOptions, options.threads));
  check(table, table.SetInterOpNumThreads(sessionOptions, 1));
  check(table, table.SetSessionExecutionMode(sessionOptions, ort::ORT_SEQUENTIAL));
  check(table, table.SetSessionGraphOptimizationLevel(sessionOptions, ort::ORT_ENABLE_BASIC));
  // The number of rows differs from step to step, so that a recorded allocation pattern never fits.
  check(table, table.DisableMemPattern(sessionOptions));
  check(table, table.CreateCustomOpDomain("pocket", &domain));
  for (const ort::OrtCustomOp* custom :
       {static_cast<const ort::OrtCustomOp*>(&attentionOp), static_cast<const ort::OrtCustomOp*>(&linearOp),
        static_cast<const ort::OrtCustomOp*>(&embeddingOp)}) {
    check(table, table.CustomOpDomain_Add(domain, custom));
  }
  check(table, table.AddCustomOpDomain(sessionOptions, domain));
  check(table, table.CreateCpuMemoryInfo(ort::OrtArenaAllocator, ort::OrtMemTypeDefault, &memory));
  check(table, table.CreateSession(env, options.graph.c_str(), sessionOptions, &session));
}

// If the graph has Linear nodes, operators run on a thread pool of the addon, and weights are read from one mapping of
// the file instead of the library's mapping per tensor. If the library multiplies, attention uses the library's threads
// too, so that two sets of spinning threads do not compete.
void Model::Runtime::mapWeights() {
  if (linearOp.nodes == 0) return;
  const size_t folder = options.graph.rfind('/') + 1;
  weights = std::make_unique<MappedFile>(options.graph.substr(0, folder) + kWeightsFile);
  weights->findOtherMappings();
  linearOp.weights = weights.get();
  threadPool = std::make_unique<ThreadPool>(options.threads);
  attentionOp.threadPool = linearOp.threadPool = embeddingOp.threadPool = threadPool.get();
}

Model::Model(const ModelOptions& options, KvStore& store) : runtime_(std::make_unique<Runtime>()) {
  Runtime& runtime = *runtime_;
  runtime.options = options;
  runtime.store = &store;
  runtime.openLibrary();
  runtime.prepareAttention();
  runtime.prepareLinear();
  runtime.loadGraph();
  runtime.mapWeights();
}

Model::~Model() = default;

const std::string& Model::runtimeVersion() const { return runtime_->version; }

Profiler& Model::profiler() { return runtime_->profiler; }
const Profiler& Model::profiler() const { return runtime_->profiler; }

namespace {

// An input tensor over memory of the caller.
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
  runtime.releaseLogits();
  runtime.attentionOp.batch = &batch;
  const Tensor tokenTensor(table, runtime.memory, tokens);
  const Tensor rowTensor(table, runtime.memory, wanted);
  const char* inputNames[] = {"tokens", "rows"};
  const ort::OrtValue* inputs[] = {tokenTensor.get(), rowTensor.get()};
  const char* outputNames[] = {"logits"};
  std::optional<ActiveScope> active;
  if (runtime.threadPool) active.emplace(*runtime.threadPool);
  {
    const ScopedTimer timed(runtime.graph);
    check(table, table.Run(runtime.session, nullptr, inputNames, inputs, 2, outputNames, 1, &runtime.logits));
  }
  void* data = nullptr;
  check(table, table.GetTensorMutableData(runtime.logits, &data));
  return static_cast<float*>(data);
}

}  // namespace pocket
