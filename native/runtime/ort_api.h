// Declares by hand the small part of ONNX Runtime's C API that this project calls, so that building needs no ONNX
// Runtime headers and running needs only the shared library, whose one entry point OrtGetApiBase is found with dlsym.
// The API table only ever grows at its end and is asked for by version, so a function's position in it is stable and
// the table can be read as an array of function pointers.
// Positions, signatures and enum values are facts of the public API (versions 17 to 30), counted from the 1.30 header,
// checked against the library's own end-of-version slot assertions and tried against libonnxruntime 1.30.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ort {

// ---- opaque objects: made and released by the library ----

struct OrtAllocator;
struct OrtCustomOpDomain;
struct OrtEnv;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtShapeInferContext;
struct OrtStatus;
struct OrtTensorTypeAndShapeInfo;
struct OrtValue;

// One slot of the API table; a `const OrtApi*` from the library points at slot 0.
using OrtApi = const void*;

#ifdef _WIN32
using OrtPathChar = wchar_t;
#else
using OrtPathChar = char;
#endif

// ---- enums ----

enum OrtErrorCode : int {
  ORT_OK = 0,
  ORT_FAIL = 1,
  ORT_INVALID_ARGUMENT = 2,
  ORT_NO_SUCHFILE = 3,
  ORT_NO_MODEL = 4,
  ORT_ENGINE_ERROR = 5,
  ORT_RUNTIME_EXCEPTION = 6,
  ORT_INVALID_PROTOBUF = 7,
  ORT_MODEL_LOADED = 8,
  ORT_NOT_IMPLEMENTED = 9,
  ORT_INVALID_GRAPH = 10,
  ORT_EP_FAIL = 11,
  ORT_MODEL_LOAD_CANCELED = 12,
  ORT_MODEL_REQUIRES_COMPILATION = 13,
  ORT_NOT_FOUND = 14,
};

enum OrtLoggingLevel : int {
  ORT_LOGGING_LEVEL_VERBOSE = 0,
  ORT_LOGGING_LEVEL_INFO = 1,
  ORT_LOGGING_LEVEL_WARNING = 2,
  ORT_LOGGING_LEVEL_ERROR = 3,
  ORT_LOGGING_LEVEL_FATAL = 4,
};

enum GraphOptimizationLevel : int {
  ORT_DISABLE_ALL = 0,
  ORT_ENABLE_BASIC = 1,
  ORT_ENABLE_EXTENDED = 2,
  ORT_ENABLE_LAYOUT = 3,
  ORT_ENABLE_ALL = 99,
};

enum ExecutionMode : int {
  ORT_SEQUENTIAL = 0,
  ORT_PARALLEL = 1,
};

enum OrtAllocatorType : int {
  OrtInvalidAllocator = -1,
  OrtDeviceAllocator = 0,
  OrtArenaAllocator = 1,
  OrtReadOnlyAllocator = 2,
};

enum OrtMemType : int {
  OrtMemTypeCPUInput = -2,
  OrtMemTypeCPUOutput = -1,
  OrtMemTypeDefault = 0,
};

enum ONNXTensorElementDataType : int {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = 2,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = 3,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 = 4,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16 = 5,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING = 8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = 9,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = 11,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 = 12,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 = 13,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = 16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4 = 21,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 = 22,
};

enum OrtCustomOpInputOutputCharacteristic : int {
  INPUT_OUTPUT_REQUIRED = 0,
  INPUT_OUTPUT_OPTIONAL = 1,
  INPUT_OUTPUT_VARIADIC = 2,
};

// ---- callbacks we hand to the library ----

using OrtLoggingFunction = void (*)(void* param, OrtLoggingLevel severity, const char* category, const char* log_id,
                                    const char* code_location, const char* message);

// Called once for each i in [0, total), on the calling thread or one of the session's, before KernelContext_ParallelFor
// returns; it must not throw.
using OrtParallelBody = void (*)(void* user, std::size_t i);

// ---- entry point ----

struct OrtApiBase {
  const OrtApi* (*GetApi)(std::uint32_t version);  // null when the library is older than `version`
  const char* (*GetVersionString)();
};

using OrtGetApiBaseFunction = const OrtApiBase* (*)();
constexpr const char* kOrtGetApiBaseSymbol = "OrtGetApiBase";

// The lowest API version that has every entry below (KernelContext_ParallelFor came last, in 17).
constexpr std::uint32_t kApiVersion = 17;

// ---- custom operator ----

// The library keeps the pointer: an op must outlive the domain it was added to.
// `version` says which groups of fields the library may read: a group's comment names the version it came with, and a
// null in a group marked optional means "not provided".
struct OrtCustomOp {
  std::uint32_t version = kApiVersion;

  void* (*CreateKernel)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info) = nullptr;
  const char* (*GetName)(const OrtCustomOp* op) = nullptr;
  const char* (*GetExecutionProviderType)(const OrtCustomOp* op) = nullptr;  // returns null for CPU
  ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp* op, std::size_t index) = nullptr;
  std::size_t (*GetInputTypeCount)(const OrtCustomOp* op) = nullptr;
  ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp* op, std::size_t index) = nullptr;
  std::size_t (*GetOutputTypeCount)(const OrtCustomOp* op) = nullptr;
  void (*KernelCompute)(void* kernel, OrtKernelContext* context) = nullptr;
  void (*KernelDestroy)(void* kernel) = nullptr;

  // 8, but the library calls these whatever `version` says
  OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(const OrtCustomOp* op, std::size_t index) = nullptr;
  OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(const OrtCustomOp* op, std::size_t index) = nullptr;

  // 13
  OrtMemType (*GetInputMemoryType)(const OrtCustomOp* op, std::size_t index) = nullptr;

  // 14; called only for variadic inputs or outputs
  int (*GetVariadicInputMinArity)(const OrtCustomOp* op) = nullptr;
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp* op) = nullptr;
  int (*GetVariadicOutputMinArity)(const OrtCustomOp* op) = nullptr;
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp* op) = nullptr;

  // 16, optional; each replaces its namesake above and reports failure with a status the library releases
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info,
                               void** kernel) = nullptr;
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext* context) = nullptr;

  // 17, optional
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp* op, OrtShapeInferContext* context) = nullptr;
  int (*GetStartVersion)(const OrtCustomOp* op) = nullptr;
  int (*GetEndVersion)(const OrtCustomOp* op) = nullptr;

  // 18, optional
  std::size_t (*GetMayInplace)(int** input_index, int** output_index) = nullptr;
  void (*ReleaseMayInplace)(int* input_index, int* output_index) = nullptr;
  std::size_t (*GetAliasMap)(int** input_index, int** output_index) = nullptr;
  void (*ReleaseAliasMap)(int* input_index, int* output_index) = nullptr;
};

static_assert(sizeof(void*) != 8 || sizeof(OrtCustomOp) == 26 * 8, "OrtCustomOp is a version and 25 pointers");
static_assert(sizeof(void*) != 8 || offsetof(OrtCustomOp, CreateKernelV2) == 17 * 8, "OrtCustomOp field order");
static_assert(sizeof(void*) != 8 || offsetof(OrtCustomOp, ReleaseAliasMap) == 25 * 8, "OrtCustomOp field order");

// ---- the API table ----

// X(slot, name, result, parameters): an OrtStatus* result is null on success and otherwise the caller's to release.
#define ORT_API_ENTRIES(X)                                                                                          \
  X(0, CreateStatus, OrtStatus*, (OrtErrorCode code, const char* message))                                          \
  X(1, GetErrorCode, OrtErrorCode, (const OrtStatus* status))                                                       \
  X(2, GetErrorMessage, const char*, (const OrtStatus* status))                                                     \
  X(3, CreateEnv, OrtStatus*, (OrtLoggingLevel level, const char* log_id, OrtEnv** out))                            \
  X(4, CreateEnvWithCustomLogger, OrtStatus*,                                                                       \
    (OrtLoggingFunction log, void* log_param, OrtLoggingLevel level, const char* log_id, OrtEnv** out))             \
  X(7, CreateSession, OrtStatus*,                                                                                   \
    (const OrtEnv* env, const OrtPathChar* path, const OrtSessionOptions* options, OrtSession** out))               \
  X(8, CreateSessionFromArray, OrtStatus*,                                                                          \
    (const OrtEnv* env, const void* model, std::size_t bytes, const OrtSessionOptions* options, OrtSession** out))  \
  X(9, Run, OrtStatus*,                                                                                             \
    (OrtSession * session, const OrtRunOptions* options, const char* const* input_names,                            \
     const OrtValue* const* inputs, std::size_t input_count, const char* const* output_names,                       \
     std::size_t output_count, OrtValue** outputs))                                                                 \
  X(10, CreateSessionOptions, OrtStatus*, (OrtSessionOptions * *out))                                               \
  X(13, SetSessionExecutionMode, OrtStatus*, (OrtSessionOptions * options, ExecutionMode mode))                     \
  X(17, DisableMemPattern, OrtStatus*, (OrtSessionOptions * options))                                               \
  X(18, EnableCpuMemArena, OrtStatus*, (OrtSessionOptions * options))                                               \
  X(19, DisableCpuMemArena, OrtStatus*, (OrtSessionOptions * options))                                              \
  X(23, SetSessionGraphOptimizationLevel, OrtStatus*, (OrtSessionOptions * options, GraphOptimizationLevel level))  \
  X(24, SetIntraOpNumThreads, OrtStatus*, (OrtSessionOptions * options, int threads))                               \
  X(25, SetInterOpNumThreads, OrtStatus*, (OrtSessionOptions * options, int threads))                               \
  X(26, CreateCustomOpDomain, OrtStatus*, (const char* domain, OrtCustomOpDomain** out))                            \
  X(27, CustomOpDomain_Add, OrtStatus*, (OrtCustomOpDomain * domain, const OrtCustomOp* op))                        \
  X(28, AddCustomOpDomain, OrtStatus*, (OrtSessionOptions * options, OrtCustomOpDomain * domain))                   \
  X(30, SessionGetInputCount, OrtStatus*, (const OrtSession* session, std::size_t* out))                            \
  X(31, SessionGetOutputCount, OrtStatus*, (const OrtSession* session, std::size_t* out))                           \
  X(36, SessionGetInputName, OrtStatus*,                                                                            \
    (const OrtSession* session, std::size_t index, OrtAllocator* allocator, char** out))                            \
  X(37, SessionGetOutputName, OrtStatus*,                                                                           \
    (const OrtSession* session, std::size_t index, OrtAllocator* allocator, char** out))                            \
  X(39, CreateRunOptions, OrtStatus*, (OrtRunOptions * *out))                                                       \
  X(46, RunOptionsSetTerminate, OrtStatus*, (OrtRunOptions * options))                                              \
  X(47, RunOptionsUnsetTerminate, OrtStatus*, (OrtRunOptions * options))                                            \
  X(49, CreateTensorWithDataAsOrtValue, OrtStatus*,                                                                 \
    (const OrtMemoryInfo* info, void* data, std::size_t bytes, const std::int64_t* shape, std::size_t rank,         \
     ONNXTensorElementDataType type, OrtValue** out))                                                               \
  X(51, GetTensorMutableData, OrtStatus*, (OrtValue * value, void** out))                                           \
  X(61, GetDimensionsCount, OrtStatus*, (const OrtTensorTypeAndShapeInfo* info, std::size_t* out))                  \
  X(62, GetDimensions, OrtStatus*, (const OrtTensorTypeAndShapeInfo* info, std::int64_t* out, std::size_t rank))    \
  X(64, GetTensorShapeElementCount, OrtStatus*, (const OrtTensorTypeAndShapeInfo* info, std::size_t* out))          \
  X(65, GetTensorTypeAndShape, OrtStatus*, (const OrtValue* value, OrtTensorTypeAndShapeInfo** out))                \
  X(68, CreateMemoryInfo, OrtStatus*,                                                                               \
    (const char* name, OrtAllocatorType type, int id, OrtMemType mem_type, OrtMemoryInfo** out))                    \
  X(69, CreateCpuMemoryInfo, OrtStatus*, (OrtAllocatorType type, OrtMemType mem_type, OrtMemoryInfo * *out))        \
  X(76, AllocatorFree, OrtStatus*, (OrtAllocator * allocator, void* p))                                             \
  X(78, GetAllocatorWithDefaultOptions, OrtStatus*, (OrtAllocator * *out))                                          \
  X(85, KernelInfoGetAttribute_float, OrtStatus*, (const OrtKernelInfo* info, const char* name, float* out))        \
  X(86, KernelInfoGetAttribute_int64, OrtStatus*, (const OrtKernelInfo* info, const char* name, std::int64_t* out)) \
  X(88, KernelContext_GetInputCount, OrtStatus*, (const OrtKernelContext* context, std::size_t* out))               \
  X(89, KernelContext_GetOutputCount, OrtStatus*, (const OrtKernelContext* context, std::size_t* out))              \
  X(90, KernelContext_GetInput, OrtStatus*,                                                                         \
    (const OrtKernelContext* context, std::size_t index, const OrtValue** out))                                     \
  X(91, KernelContext_GetOutput, OrtStatus*,                                                                        \
    (OrtKernelContext * context, std::size_t index, const std::int64_t* shape, std::size_t rank, OrtValue** out))   \
  X(92, ReleaseEnv, void, (OrtEnv * env))                                                                           \
  X(93, ReleaseStatus, void, (OrtStatus * status))                                                                  \
  X(94, ReleaseMemoryInfo, void, (OrtMemoryInfo * info))                                                            \
  X(95, ReleaseSession, void, (OrtSession * session))                                                               \
  X(96, ReleaseValue, void, (OrtValue * value))                                                                     \
  X(97, ReleaseRunOptions, void, (OrtRunOptions * options))                                                         \
  X(99, ReleaseTensorTypeAndShapeInfo, void, (OrtTensorTypeAndShapeInfo * info))                                    \
  X(100, ReleaseSessionOptions, void, (OrtSessionOptions * options))                                                \
  X(101, ReleaseCustomOpDomain, void, (OrtCustomOpDomain * domain))                                                 \
  X(130, AddSessionConfigEntry, OrtStatus*, (OrtSessionOptions * options, const char* key, const char* value))      \
  X(162, KernelInfoGetAttributeArray_float, OrtStatus*,                                                             \
    (const OrtKernelInfo* info, const char* name, float* out, std::size_t* size))                                   \
  X(165, AddRunConfigEntry, OrtStatus*, (OrtRunOptions * options, const char* key, const char* value))              \
  X(244, KernelInfo_GetNodeName, OrtStatus*, (const OrtKernelInfo* info, char* out, std::size_t* size))             \
  X(274, KernelContext_ParallelFor, OrtStatus*,                                                                     \
    (const OrtKernelContext* context, OrtParallelBody body, std::size_t total, std::size_t batches, void* user))

enum Index : std::size_t {
#define ORT_API_INDEX(slot, name, result, parameters) k##name = slot,
  ORT_API_ENTRIES(ORT_API_INDEX)
#undef ORT_API_INDEX
};

// The entries above as typed function pointers, read once from the library's table: `api.Run(session, ...)`.
struct OrtTable {
#define ORT_API_FIELD(slot, name, result, parameters) result(*name) parameters = nullptr;
  ORT_API_ENTRIES(ORT_API_FIELD)
#undef ORT_API_FIELD

  OrtTable() = default;

  explicit OrtTable(const void* const* slots) {
#define ORT_API_READ(slot, name, result, parameters) \
  name = reinterpret_cast<result(*) parameters>(const_cast<void*>(slots[k##name]));
    ORT_API_ENTRIES(ORT_API_READ)
#undef ORT_API_READ
  }
};

#undef ORT_API_ENTRIES

}  // namespace ort
