#include "runtime/linear_op.h"

#include <algorithm>
#include <string>

#include "linear/rms_norm.h"
#include "linear/weight_row.h"

namespace pocket {

namespace {

constexpr int kMaxWeights = 3;
// Indices of the inputs behind x, the panels and the biases; and of the output behind the y.
constexpr size_t kGain = 1 + 2 * kMaxWeights, kBranch = kGain + 1, kSum = kMaxWeights;
// Rows that one body norms; fewer are not worth a parallel region.
constexpr int kRowsPerBody = 16;
constexpr size_t kPrefetchBytes = 256 * 1024;  // of a weight: with a factor half of a nearest cache but one
constexpr int kPrefetchRows = 32;  // of more the arithmetic is the limit
constexpr int64_t kMaxRows = 1 << 28;

BlockFormat formatOf(const ort::OrtTable& table, const ort::OrtKernelInfo* info, const char* name) {
  constexpr int64_t last = std::size(kBlockFormats) - 1;
  return kBlockFormats[attribute(table, info, name, 0, last)];
}

void checkColumns(BlockFormat format, int columns) {
  const int step = layoutOf(format).recordColumns();
  if (columns % step != 0) {
    throw error("RUNTIME_FAILED", "a %s weight has %d columns; it needs a multiple of %d.", name(format), columns,
                step);
  }
}

// A weight as the library has it and as it is read. Its bytes lie where they lay at the last run; so its size is
// compared once.
struct Panels {
  void take(const NodeRun& node, size_t index, const MappedFile* weights, LinearWeight& weight) {
    const void* data = node.data(index);
    if (data != nullptr && data == seen) return;
    node.checked(index, panelBytes(weight.format, weight.rows, weight.columns), "a weight's panels");
    weight.panels = static_cast<const uint8_t*>(weights == nullptr ? data : weights->translate(data));
    mapped = weight.panels != data;
    seen = data;
  }
  const void* seen = nullptr;
  bool mapped = false;  // in the weights file's mapping, which outlives every thread
};

// one(0) … one(rows - 1), some at a time on the node's threads.
template <typename One>
void inBodies(const NodeRun& node, int rows, const One& one) {
  const auto body = [&](int index) {
    const int end = std::min(rows, (index + 1) * kRowsPerBody);
    for (int row = index * kRowsPerBody; row < end; row++) one(row);
  };
  const int bodies = (rows + kRowsPerBody - 1) / kRowsPerBody;
  if (bodies == 1) body(0);
  if (bodies > 1) node.parallel(bodies, body);
}

}  // namespace

struct LinearOpKernel {
  LinearOpKernel(const LinearOp& op, const ort::OrtKernelInfo* info) : op(op) {
    const ort::OrtTable& table = *op.table;
    op.nodes++;
    columns = static_cast<int>(attribute(table, info, "columns", 1, kMaxRows));
    weights = static_cast<int>(attribute(table, info, "weights", 1, kMaxWeights));
    combine = attribute(table, info, "combine", 0, 1) == 1 ? Combine::kSwiGlu : Combine::kNone;
    activations = attribute(table, info, "activations", 0, 1) == 1 ? Activations::kF32 : Activations::kInt8;
    check(table, table.KernelInfoGetAttribute_float(info, "epsilon", &epsilon));
    hasSum = attribute(table, info, "sum", 0, 1) == 1;
    for (int i = 0; i < weights; i++) {
      LinearWeight& weight = terms[i].weight;
      weight.columns = columns;
      weight.rows = static_cast<int>(attribute(table, info, ("rows_" + std::to_string(i)).c_str(), 1, kMaxRows));
      weight.format = formatOf(table, info, ("format_" + std::to_string(i)).c_str());
      checkColumns(weight.format, columns);
    }
    if (combine == Combine::kSwiGlu && (weights != 2 || terms[0].weight.rows != terms[1].weight.rows)) {
      throw Error("RUNTIME_FAILED", "a gated Linear needs two weights of as many rows.");
    }
  }

  void run(ort::OrtKernelContext* context) {
    const NodeRun node(*op.table, context, op.threadPool);
    const size_t elements = node.elements(0);
    if (elements % columns != 0) {
      throw error("RUNTIME_FAILED", "Linear: x has %zu elements, which are no rows of %d.", elements, columns);
    }
    const int rows = static_cast<int>(elements / columns);
    const int outputs = combine == Combine::kSwiGlu ? 1 : weights;
    for (int i = 0; i < weights; i++) {
      LinearOutput& term = terms[i];
      panels[i].take(node, 1 + 2 * i, op.weights, term.weight);
      const void* bias = node.data(2 + 2 * i);
      if (bias != nullptr && bias != term.bias) node.checked(2 + 2 * i, term.weight.rows, "a bias");
      term.bias = static_cast<const float*>(bias);
      term.out = i < outputs ? node.output(i, rows, term.weight.rows) : nullptr;
    }
    findStarts();
    const float* x = input(node, rows);
    // Outputs without elements have no memory.
    if (rows == 0) return;
    op.linear->run(x, rows, terms, weights, combine, activations, [&](int count, const std::function<void(int)>& body) {
      prefetchNext(rows);
      node.parallel(count, body);
    });
  }

  // Tells the threadPool what to read while it waits for the next node. Nodes run in the same order at every step, so the node
  // that ran behind this one will run there again.
  void prefetchNext(int rows) {
    if (op.threadPool == nullptr) return;
    if (op.last != nullptr && op.last != this) op.last->next = this;
    op.last = this;
    const bool known = next != nullptr && !next->starts.empty() && rows <= kPrefetchRows;
    for (int t = 0; t < op.threadPool->threads(); t++) op.threadPool->prefetch(t, known ? &next->starts[t] : nullptr);
  }

  // Where each thread will begin, as soon as the weights are known; they stay, so this does.
  void findStarts() {
    if (op.threadPool == nullptr || !starts.empty()) return;
    for (int i = 0; i < weights; i++)
      if (!panels[i].mapped) return;
    for (int t = 0; t < op.threadPool->threads(); t++) {
      const Linear::Start start = op.linear->startOf(terms, weights, combine, t);
      starts.push_back({start.first, start.second, std::min(start.bytes, kPrefetchBytes)});
    }
  }

  // x as it came, or normed into the scratch.
  const float* input(const NodeRun& node, int rows) const {
    const auto* x = static_cast<const float*>(node.data(0));
    const auto* gain = static_cast<const float*>(node.data(kGain));
    if (gain == nullptr) return x;
    const ScopedTimer timed(*op.norms);
    node.checked(kGain, columns, "a norm's gain");
    const size_t size = static_cast<size_t>(rows) * columns;
    const float* branch =
        node.data(kBranch) == nullptr ? nullptr : static_cast<const float*>(node.checked(kBranch, size, "the branch"));
    float* sum = hasSum ? node.output(kSum, rows, columns) : nullptr;
    if (op.scratch.size() < size) op.scratch.resize(size);
    float* normed = op.scratch.data();
    inBodies(node, rows, [&](int row) {
      const size_t at = static_cast<size_t>(row) * columns;
      rmsNorm(x + at, branch == nullptr ? nullptr : branch + at, gain, epsilon, columns,
              sum == nullptr ? nullptr : sum + at, normed + at);
    });
    return normed;
  }

  const LinearOp& op;
  int columns = 0;
  float epsilon = 0;
  bool hasSum = false;
  int weights = 0;
  Combine combine = Combine::kNone;
  Activations activations = Activations::kInt8;
  LinearOutput terms[kMaxWeights];
  Panels panels[kMaxWeights];
  LinearOpKernel* next = nullptr;
  std::vector<Prefetch> starts;
};

namespace {

struct EmbeddingKernel {
  EmbeddingKernel(const EmbeddingOp& op, const ort::OrtKernelInfo* info) : op(op) {
    const ort::OrtTable& api = *op.table;
    table.rows = static_cast<int>(attribute(api, info, "rows", 1, kMaxRows));
    table.columns = static_cast<int>(attribute(api, info, "columns", 1, kMaxRows));
    table.format = formatOf(api, info, "format");
    checkColumns(table.format, table.columns);
  }

  void run(ort::OrtKernelContext* context) {
    const NodeRun node(*op.table, context, op.threadPool);
    const int count = static_cast<int>(node.elements(0));
    panels.take(node, 1, nullptr, table);
    float* out = node.output(0, count, table.columns);
    const auto* tokens = static_cast<const int64_t*>(node.data(0));
    for (int t = 0; t < count; t++) {
      if (tokens[t] >= 0 && tokens[t] < table.rows) continue;
      throw error("RUNTIME_FAILED", "token %lld is not in a vocabulary of %d.", static_cast<long long>(tokens[t]),
                  table.rows);
    }
    inBodies(node, count, [&](int t) {
      readWeightRow(table, static_cast<int>(tokens[t]), out + static_cast<size_t>(t) * table.columns);
    });
  }

  const EmbeddingOp& op;
  LinearWeight table;
  Panels panels;
};

}  // namespace

LinearOp::LinearOp() {
  fillCommon(*this);
  fillLife<LinearOp, LinearOpKernel>(*this);
  GetName = [](const OrtCustomOp*) { return "Linear"; };
  GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return kBranch + 1; };
  GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return kSum + 1; };
  GetInputType = [](const OrtCustomOp*, size_t index) {
    const bool panels = index < kGain && index % 2 == 1;
    return panels ? ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 : ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  };
  GetInputCharacteristic = [](const OrtCustomOp*, size_t index) {
    return index < 2 ? ort::INPUT_OUTPUT_REQUIRED : ort::INPUT_OUTPUT_OPTIONAL;
  };
  GetOutputCharacteristic = [](const OrtCustomOp*, size_t index) {
    return index < 1 ? ort::INPUT_OUTPUT_REQUIRED : ort::INPUT_OUTPUT_OPTIONAL;
  };
}

EmbeddingOp::EmbeddingOp() {
  fillCommon(*this);
  fillLife<EmbeddingOp, EmbeddingKernel>(*this);
  GetName = [](const OrtCustomOp*) { return "Embedding"; };
  GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return 2; };
  GetInputType = [](const OrtCustomOp*, size_t index) {
    return index == 0 ? ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 : ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
  };
}

}  // namespace pocket
