#include "runtime/model.h"

#include <dlfcn.h>

#include <optional>

#include "error.h"
#include "linear/linear.h"
#include "runtime/linear_op.h"
#include "runtime/mapped_file.h"
#include "runtime/ort_kernel.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"

namespace pocket {

namespace {

// The name that the graphs of models/import.ts give to the file beside them.
constexpr const char* kWeightsFile = "weights.bin";

// What the operator's kernels read while a run is on: set by Model::run, the same for all layers.
struct Current {
  const Batch* batch = nullptr;
  Attention* attention = nullptr;
};

// pocket::PagedAttention (q, k, v) -> out, all f32 with one row per batch row; attributes `layer`, and `pair_scales`, which
// the store divides the layer's keys by.
struct PagedAttentionOp : ort::OrtCustomOp {
  PagedAttentionOp();

  const ort::OrtTable* table = nullptr;
  Team* team = nullptr;
  Parts* parts = nullptr;
  KvStore* store = nullptr;
  Current current;
  AttentionShape shape;
  int layers = 0;
};

struct PagedAttentionKernel {
  PagedAttentionKernel(const PagedAttentionOp& op, const ort::OrtKernelInfo* info)
      : op(op), layer(static_cast<int>(attribute(*op.table, info, "layer", 0, op.layers - 1))) {
    op.store->setPairScales(layer, floats(*op.table, info, "pair_scales"));
  }
  void run(ort::OrtKernelContext* context) const;

  const PagedAttentionOp& op;
  int layer;
};

void PagedAttentionKernel::run(ort::OrtKernelContext* context) const {
  const Batch& batch = *op.current.batch;
  const size_t rows = batch.rows.size();
  const size_t queryWidth = static_cast<size_t>(op.shape.heads) * op.shape.headDim;
  const size_t keyWidth = static_cast<size_t>(op.shape.kvHeads) * op.shape.headDim;
  const NodeRun node(*op.table, context, op.team);
  AttentionInput tensors;
  tensors.q = static_cast<const float*>(node.checked(0, rows * queryWidth, "PagedAttention: q"));
  tensors.k = static_cast<const float*>(node.checked(1, rows * keyWidth, "PagedAttention: k"));
  tensors.v = static_cast<const float*>(node.checked(2, rows * keyWidth, "PagedAttention: v"));
  tensors.out = node.output(0, static_cast<int64_t>(rows), static_cast<int64_t>(queryWidth));
  op.current.attention->run(
      batch, tensors, op.store->layer(layer),
      [&node](int count, const std::function<void(int)>& body) { node.parallel(count, body); });
}

PagedAttentionOp::PagedAttentionOp() {
  fillCommon(*this);
  fillLife<PagedAttentionOp, PagedAttentionKernel>(*this);
  GetName = [](const OrtCustomOp*) { return "PagedAttention"; };
  GetInputType = [](const OrtCustomOp*, size_t) { return ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return 3; };
}

}  // namespace

// Everything the library hands out, released in reverse order.
struct Model::Runtime {
  ort::OrtTable table;
  std::string version;
  ModelOptions options;
  KvStore* store = nullptr;
  Parts parts;
  Part& graph = parts.add("graph");
  Part& norms = parts.add("norms");
  std::unique_ptr<Rope> rope;
  std::unique_ptr<Attention> attention;
  std::unique_ptr<Linear> linear;
  PagedAttentionOp op;
  LinearOp linearOp;
  EmbeddingOp embeddingOp;
  std::unique_ptr<Team> team;
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
  void equipLinear();
  void dropLogits() {
    if (logits != nullptr) table.ReleaseValue(logits);
    logits = nullptr;
  }

  ~Runtime() {
    team.reset();  // its threads may still read what nodes gave them
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
  op.parts = &parts;
  op.store = store;
  op.layers = options.layers;
  op.shape.heads = options.heads;
  op.shape.kvHeads = options.kvHeads;
  op.shape.headDim = options.headDim;
  op.shape.scale = 1.0f / std::sqrt(static_cast<float>(options.headDim));
  attention = options.attend != nullptr
                  ? makeAttention(op.shape, store->shape(), *rope, options.attend, options.threads)
                  : makeAttention(op.shape, store->shape(), *rope, options.isa, options.threads);
}

void Model::Runtime::prepareLinear() {
  linear = makeLinear(options.isa, options.threads);
  linearOp.table = embeddingOp.table = &table;
  linearOp.parts = embeddingOp.parts = &parts;
  linearOp.norms = &norms;
  linearOp.linear = linear.get();
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
  for (const ort::OrtCustomOp* custom : {static_cast<const ort::OrtCustomOp*>(&op),
                                         static_cast<const ort::OrtCustomOp*>(&linearOp),
                                         static_cast<const ort::OrtCustomOp*>(&embeddingOp)}) {
    check(table, table.CustomOpDomain_Add(domain, custom));
  }
  check(table, table.AddCustomOpDomain(sessionOptions, domain));
  check(table, table.CreateCpuMemoryInfo(ort::OrtArenaAllocator, ort::OrtMemTypeDefault, &memory));
  check(table, table.CreateSession(env, options.graph.c_str(), sessionOptions, &session));
}

// Where the linear layers are ours, so are the threads, and weights are read from one mapping instead of one a tensor,
// which the library makes. Where it multiplies itself its threads do both, so that not twice as many look for work.
void Model::Runtime::equipLinear() {
  if (linearOp.nodes == 0) return;
  const size_t folder = options.graph.rfind('/') + 1;
  weights = std::make_unique<MappedFile>(options.graph.substr(0, folder) + kWeightsFile);
  weights->findTwins();
  linearOp.weights = weights.get();
  team = std::make_unique<Team>(options.threads);
  op.team = linearOp.team = embeddingOp.team = team.get();
}

Model::Model(const ModelOptions& options, KvStore& store) : runtime_(std::make_unique<Runtime>()) {
  Runtime& runtime = *runtime_;
  runtime.options = options;
  runtime.store = &store;
  runtime.openLibrary();
  runtime.prepareAttention();
  runtime.prepareLinear();
  runtime.loadGraph();
  runtime.equipLinear();
}

Model::~Model() = default;

const std::string& Model::runtimeVersion() const { return runtime_->version; }

Parts& Model::parts() { return runtime_->parts; }
const Parts& Model::parts() const { return runtime_->parts; }

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
  runtime.op.current = {&batch, runtime.attention.get()};
  const Tensor tokenTensor(table, runtime.memory, tokens);
  const Tensor rowTensor(table, runtime.memory, wanted);
  const char* inputNames[] = {"tokens", "rows"};
  const ort::OrtValue* inputs[] = {tokenTensor.get(), rowTensor.get()};
  const char* outputNames[] = {"logits"};
  std::optional<Awake> awake;
  if (runtime.team) awake.emplace(*runtime.team);
  {
    const Timed timed(runtime.graph);
    check(table, table.Run(runtime.session, nullptr, inputNames, inputs, 2, outputNames, 1, &runtime.logits));
  }
  void* data = nullptr;
  check(table, table.GetTensorMutableData(runtime.logits, &data));
  return static_cast<float*>(data);
}

}  // namespace pocket
