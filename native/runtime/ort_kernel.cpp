#include "runtime/ort_kernel.h"

namespace pocket {

void check(const ort::OrtTable& table, ort::OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = table.GetErrorMessage(status);
  table.ReleaseStatus(status);
  throw Error("RUNTIME_FAILED", "ONNX Runtime: " + message);
}

const ort::OrtValue* NodeRun::input(size_t index) const {
  size_t count = 0;
  check(table_, table_.KernelContext_GetInputCount(context_, &count));
  if (index >= count) return nullptr;
  const ort::OrtValue* value = nullptr;
  check(table_, table_.KernelContext_GetInput(context_, index, &value));
  return value;
}

const void* NodeRun::data(size_t index) const {
  const ort::OrtValue* value = input(index);
  if (value == nullptr) return nullptr;
  void* data = nullptr;
  // The library has one accessor for both; inputs are only read.
  check(table_, table_.GetTensorMutableData(const_cast<ort::OrtValue*>(value), &data));
  return data;
}

size_t NodeRun::elements(size_t index) const {
  const ort::OrtValue* value = input(index);
  if (value == nullptr) throw error("RUNTIME_FAILED", "a node's input %zu is missing.", index);
  ort::OrtTensorTypeAndShapeInfo* info = nullptr;
  check(table_, table_.GetTensorTypeAndShape(value, &info));
  size_t count = 0;
  ort::OrtStatus* status = table_.GetTensorShapeElementCount(info, &count);
  table_.ReleaseTensorTypeAndShapeInfo(info);
  check(table_, status);
  return count;
}

const void* NodeRun::checked(size_t index, size_t wanted, const char* what) const {
  const size_t count = elements(index);
  if (count != wanted) {
    throw error("RUNTIME_FAILED", "%s (input %zu) has %zu elements; %zu were expected.", what, index, count, wanted);
  }
  return data(index);
}

float* NodeRun::output(size_t index, int64_t rows, int64_t columns) const {
  const int64_t dims[] = {rows, columns};
  ort::OrtValue* value = nullptr;
  check(table_, table_.KernelContext_GetOutput(context_, index, dims, 2, &value));
  void* data = nullptr;
  check(table_, table_.GetTensorMutableData(value, &data));
  return static_cast<float*>(data);
}

namespace {

struct Loop {
  const std::function<void(int)>* body;
  std::exception_ptr failure;
  std::mutex mutex;
};

void runOne(void* user, size_t index) {
  Loop& loop = *static_cast<Loop*>(user);
  try {
    (*loop.body)(static_cast<int>(index));
  } catch (...) {
    std::lock_guard<std::mutex> lock(loop.mutex);
    if (!loop.failure) loop.failure = std::current_exception();
  }
}

}  // namespace

void NodeRun::parallel(int count, const std::function<void(int)>& body) const {
  if (threadPool_ != nullptr) return threadPool_->run(count, body);
  Loop loop{&body, nullptr, {}};
  const size_t total = static_cast<size_t>(count);
  check(table_, table_.KernelContext_ParallelFor(context_, runOne, total, total, &loop));
  if (loop.failure) std::rethrow_exception(loop.failure);
}

int64_t attribute(const ort::OrtTable& table, const ort::OrtKernelInfo* info, const char* name, int64_t low,
                  int64_t high) {
  int64_t value = 0;
  check(table, table.KernelInfoGetAttribute_int64(info, name, &value));
  if (value >= low && value <= high) return value;
  throw error("RUNTIME_FAILED", "a node's attribute %s is %lld; it must lie in %lld ... %lld.", name,
              static_cast<long long>(value), static_cast<long long>(low), static_cast<long long>(high));
}

std::string nodeName(const ort::OrtTable& table, const ort::OrtKernelInfo* info) {
  size_t size = 0;  // with the zero at the end
  check(table, table.KernelInfo_GetNodeName(info, nullptr, &size));
  std::string name(size, '\0');
  check(table, table.KernelInfo_GetNodeName(info, name.data(), &size));
  name.resize(size > 0 ? size - 1 : 0);
  return name;
}

std::vector<float> floats(const ort::OrtTable& table, const ort::OrtKernelInfo* info, const char* name) {
  try {
    size_t count = 0;
    check(table, table.KernelInfoGetAttributeArray_float(info, name, nullptr, &count));
    std::vector<float> values(count);
    if (count > 0) check(table, table.KernelInfoGetAttributeArray_float(info, name, values.data(), &count));
    return values;
  } catch (const Error& failure) {
    // The library's sentence does not say which.
    throw error("RUNTIME_FAILED", "a node's attribute %s cannot be read: %s", name, failure.what());
  }
}

void fillCommon(ort::OrtCustomOp& op) {
  using ort::OrtCustomOp;
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op.GetOutputType = [](const OrtCustomOp*, size_t) { return ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  op.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  op.GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return ort::INPUT_OUTPUT_REQUIRED; };
  op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return ort::INPUT_OUTPUT_REQUIRED; };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return ort::OrtMemTypeDefault; };
}

}  // namespace pocket
