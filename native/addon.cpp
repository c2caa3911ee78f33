// The border to JavaScript: turns values into plain structs once, calls the runner, turns results and errors
// back. Every call opens with the same lines: argument types, runner open; the runner itself refuses while a
// step is on. No exception leaves this file except as a JavaScript error with a code of src/errors.ts.
#include <napi.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "runner.h"

namespace pocket {

namespace {

Napi::Error toJs(Napi::Env env, const char* code, const std::string& message) {
  Napi::Error failure = Napi::Error::New(env, message);
  failure.Set("code", Napi::String::New(env, code));
  return failure;
}

// Runs `call`, turning what it throws into a JavaScript error.
template <typename Call>
auto guarded(Napi::Env env, Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const Error& failure) {
    throw toJs(env, failure.code(), failure.what());
  } catch (const std::bad_alloc&) {
    throw toJs(env, "OUT_OF_MEMORY", "Memory ran out inside the addon.");
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& failure) {
    throw toJs(env, "RUNTIME_FAILED", failure.what());
  }
}

// ---- JavaScript values in ----

double number(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsNumber()) throw error("BAD_ARGUMENT", "%s must be a number.", key);
  return value.As<Napi::Number>().DoubleValue();
}

int32_t integer(const Napi::Object& object, const char* key) {
  const double value = number(object, key);
  if (!(value >= -2147483648.0 && value <= 2147483647.0) || value != static_cast<int32_t>(value)) {
    throw error("BAD_ARGUMENT", "%s must be a 32-bit integer, not %g.", key, value);
  }
  return static_cast<int32_t>(value);
}

std::string text(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsString()) throw error("BAD_ARGUMENT", "%s must be a string.", key);
  return value.As<Napi::String>().Utf8Value();
}

int32_t argument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  const Napi::Value value = info[index];
  if (!value.IsNumber()) throw error("BAD_ARGUMENT", "%s must be a number.", name);
  return value.As<Napi::Number>().Int32Value();
}

std::vector<int32_t> integers(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
    throw error("BAD_ARGUMENT", "%s must be an Int32Array.", name);
  }
  const auto array = value.As<Napi::Int32Array>();
  return {array.Data(), array.Data() + array.ElementLength()};
}

const std::pair<const char*, KvType> kvTypes[] = {
    {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"bf16", KvType::kBf16}, {"int8", KvType::kInt8}};

KvType kvType(const std::string& wanted) {
  for (const auto& [label, type] : kvTypes) {
    if (wanted == label) return type;
  }
  throw error("BAD_ARGUMENT", "kvType is f32, f16, bf16 or int8, not %s.", wanted.c_str());
}

Isa isa(const Napi::Value& value) {
  const std::vector<Isa> supported = supportedIsas();
  if (!value.IsString()) return supported.back();
  const std::string wanted = value.As<Napi::String>().Utf8Value();
  std::string have;
  for (const Isa candidate : supported) {
    if (wanted == name(candidate)) return candidate;
    have += std::string(have.empty() ? "" : ", ") + name(candidate);
  }
  throw error("BAD_ARGUMENT", "This machine has the kernel sets %s, not %s.", have.c_str(), wanted.c_str());
}

RunnerOptions runnerOptions(const Napi::Object& from) {
  const Napi::Value model = from.Get("model");
  if (!model.IsObject()) throw Error("BAD_ARGUMENT", "model must be an object.");
  const auto shape = model.As<Napi::Object>();
  RunnerOptions options;
  options.model.graph = text(shape, "graph");
  options.model.runtime = text(from, "runtime");
  options.model.layers = integer(shape, "layers");
  options.model.heads = integer(shape, "heads");
  options.model.kvHeads = integer(shape, "kvHeads");
  options.model.headDim = integer(shape, "headDim");
  options.model.vocab = integer(shape, "vocab");
  options.model.context = integer(shape, "context");
  options.model.ropeBase = number(shape, "ropeBase");
  options.model.threads = integer(from, "threads");
  options.model.isa = isa(from.Get("isa"));
  options.pages = integer(from, "pages");
  options.pageSize = integer(from, "pageSize");
  options.kvType = kvType(text(from, "kvType"));
  if (options.pageSize <= 0 || options.pageSize % kTile != 0 || options.pages <= 0 || options.model.threads <= 0) {
    throw error("BAD_ARGUMENT", "%d pages of %d tokens on %d threads: the page size is a multiple of %d, the others positive.",
                options.pages, options.pageSize, options.model.threads, kTile);
  }
  return options;
}

Sampling sampling(const Napi::Object& from) {
  Sampling to;
  to.temperature = static_cast<float>(number(from, "temperature"));
  to.topK = integer(from, "topK");
  to.topP = static_cast<float>(number(from, "topP"));
  to.minP = static_cast<float>(number(from, "minP"));
  to.repetitionPenalty = static_cast<float>(number(from, "repetitionPenalty"));
  to.frequencyPenalty = static_cast<float>(number(from, "frequencyPenalty"));
  to.presencePenalty = static_cast<float>(number(from, "presencePenalty"));
  to.seed = static_cast<uint64_t>(number(from, "seed"));
  to.draw = static_cast<uint64_t>(number(from, "draw"));
  return to;
}

int32_t alternatives(const Napi::Object& from, const char* key) {
  const int32_t count = from.Has(key) && !from.Get(key).IsUndefined() ? integer(from, key) : 0;
  if (count < 0 || count > 100) throw error("BAD_ARGUMENT", "%s is 0 to 100, not %d.", key, count);
  return count;
}

StepEntry stepEntry(const Napi::Value& value) {
  if (!value.IsObject()) throw Error("BAD_ARGUMENT", "A step entry must be an object.");
  const auto from = value.As<Napi::Object>();
  StepEntry entry;
  entry.sequence = integer(from, "sequence");
  entry.tokens = integers(from.Get("tokens"), "tokens");
  if (from.Has("sample") && from.Get("sample").IsObject()) {
    const auto sample = from.Get("sample").As<Napi::Object>();
    entry.sample = sampling(sample);
    entry.generatedFrom = integer(sample, "generatedFrom");
    entry.top = alternatives(sample, "top");
  }
  if (from.Has("targets") && !from.Get("targets").IsUndefined()) {
    entry.targets = integers(from.Get("targets"), "targets");
    entry.targetTop = alternatives(from, "targetTop");
  }
  return entry;
}

// ---- values out ----

template <typename Array, typename Value>
Array typedArray(Napi::Env env, const std::vector<Value>& values) {
  Array array = Array::New(env, values.size());
  for (size_t i = 0; i < values.size(); i++) array[i] = values[i];
  return array;
}

std::pair<Napi::Int32Array, Napi::Float32Array> ranked(Napi::Env env, const Ranked& from) {
  Napi::Int32Array tokens = Napi::Int32Array::New(env, from.size());
  Napi::Float32Array logprobs = Napi::Float32Array::New(env, from.size());
  for (size_t i = 0; i < from.size(); i++) {
    tokens[i] = from[i].first;
    logprobs[i] = from[i].second;
  }
  return {tokens, logprobs};
}

Napi::Object outcomeObject(Napi::Env env, const StepOutcome& outcome) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("token", outcome.sampled.token);
  object.Set("logprob", outcome.sampled.logprob);
  const auto [topTokens, topLogprobs] = ranked(env, outcome.top);
  object.Set("topTokens", topTokens);
  object.Set("topLogprobs", topLogprobs);
  object.Set("targetLogprobs", typedArray<Napi::Float32Array>(env, outcome.targetLogprobs));
  const auto [targetTokens, targetLogprobs] = ranked(env, outcome.targetTop);
  object.Set("targetTopTokens", targetTokens);
  object.Set("targetTopLogprobs", targetLogprobs);
  if (!outcome.failure.empty()) object.Set("failure", outcome.failure);
  return object;
}

// ---- the runner's handle ----

class RunnerHandle : public Napi::ObjectWrap<RunnerHandle> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(env, "Runner",
                       {InstanceMethod<&RunnerHandle::describe>("describe"),
                        InstanceMethod<&RunnerHandle::newSequence>("newSequence"),
                        InstanceMethod<&RunnerHandle::release>("release"),
                        InstanceMethod<&RunnerHandle::fork>("fork"),
                        InstanceMethod<&RunnerHandle::splice>("splice"),
                        InstanceMethod<&RunnerHandle::adopt>("adopt"),
                        InstanceMethod<&RunnerHandle::step>("step"),
                        InstanceMethod<&RunnerHandle::sequence>("sequence"),
                        InstanceMethod<&RunnerHandle::stats>("stats"),
                        InstanceMethod<&RunnerHandle::check>("check"),
                        InstanceMethod<&RunnerHandle::inspect>("inspect"),
                        InstanceMethod<&RunnerHandle::close>("close")});
  }

  explicit RunnerHandle(const Napi::CallbackInfo& info) : Napi::ObjectWrap<RunnerHandle>(info) {}

  std::unique_ptr<Runner> runner;

 private:
  Runner& open() {
    if (runner == nullptr) throw Error("ENGINE_CLOSED", "The engine is closed.");
    return *runner;
  }

  Napi::Value describe(const Napi::CallbackInfo& info);
  Napi::Value newSequence(const Napi::CallbackInfo& info);
  void release(const Napi::CallbackInfo& info);
  Napi::Value fork(const Napi::CallbackInfo& info);
  void splice(const Napi::CallbackInfo& info);
  void adopt(const Napi::CallbackInfo& info);
  Napi::Value step(const Napi::CallbackInfo& info);
  Napi::Value sequence(const Napi::CallbackInfo& info);
  Napi::Value stats(const Napi::CallbackInfo& info);
  void check(const Napi::CallbackInfo& info);
  Napi::Value inspect(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);
};

// A promise settled from a worker thread. `Execute` failures keep their code.
class Work : public Napi::AsyncWorker {
 public:
  explicit Work(Napi::Env env) : Napi::AsyncWorker(env), deferred_(Napi::Promise::Deferred::New(env)) {}
  Napi::Promise promise() const { return deferred_.Promise(); }

 protected:
  virtual void work() = 0;
  virtual Napi::Value result(Napi::Env env) = 0;
  // Called on the JavaScript thread when work() threw.
  virtual void undo() noexcept {}

 private:
  void Execute() override {
    try {
      work();
    } catch (const Error& failure) {
      fail(failure.code(), failure.what());
    } catch (const std::bad_alloc&) {
      fail("OUT_OF_MEMORY", "Memory ran out inside the addon.");
    } catch (const std::exception& failure) {
      fail("RUNTIME_FAILED", failure.what());
    }
  }

  void fail(const char* code, const std::string& message) {
    code_ = code;
    SetError(message);
  }

  void OnOK() override { deferred_.Resolve(result(Env())); }
  void OnError(const Napi::Error& failure) override {
    undo();
    deferred_.Reject(toJs(Env(), code_, failure.Message()).Value());
  }

  Napi::Promise::Deferred deferred_;
  const char* code_ = "RUNTIME_FAILED";
};

// Keeps the handle alive while the step runs, so that a collected handle never frees a pool in use.
class StepWork final : public Work {
 public:
  StepWork(Napi::Env env, RunnerHandle& handle, std::unique_ptr<Runner::Step> step)
      : Work(env), handle_(Napi::Persistent(handle.Value())), runner_(*handle.runner), step_(std::move(step)) {}

 private:
  void work() override { runner_.compute(*step_); }
  void undo() noexcept override { runner_.abandon(); }
  Napi::Value result(Napi::Env env) override {
    runner_.commit(*step_);
    Napi::Array outcomes = Napi::Array::New(env, step_->outcomes.size());
    for (size_t i = 0; i < step_->outcomes.size(); i++) {
      outcomes.Set(static_cast<uint32_t>(i), outcomeObject(env, step_->outcomes[i]));
    }
    Napi::Object object = Napi::Object::New(env);
    object.Set("outcomes", outcomes);
    object.Set("ms", step_->milliseconds);
    return object;
  }

  Napi::ObjectReference handle_;
  Runner& runner_;
  std::unique_ptr<Runner::Step> step_;
};

class CloseWork final : public Work {
 public:
  CloseWork(Napi::Env env, std::unique_ptr<Runner> runner) : Work(env), runner_(std::move(runner)) {}

 private:
  void work() override { runner_.reset(); }
  Napi::Value result(Napi::Env env) override { return env.Undefined(); }

  std::unique_ptr<Runner> runner_;
};

// The constructor of handles, per environment (worker threads have their own).
struct Instance {
  Napi::FunctionReference handleClass;
};

class OpenWork final : public Work {
 public:
  OpenWork(Napi::Env env, RunnerOptions options) : Work(env), options_(std::move(options)) {}

 private:
  void work() override { runner_ = std::make_unique<Runner>(options_); }
  Napi::Value result(Napi::Env env) override {
    Napi::Object object = env.GetInstanceData<Instance>()->handleClass.New({});
    RunnerHandle::Unwrap(object)->runner = std::move(runner_);
    return object;
  }

  RunnerOptions options_;
  std::unique_ptr<Runner> runner_;
};

Napi::Value RunnerHandle::describe(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const RunnerOptions& options = open().options();
    Napi::Object object = Napi::Object::New(env);
    object.Set("layers", options.model.layers);
    object.Set("heads", options.model.heads);
    object.Set("kvHeads", options.model.kvHeads);
    object.Set("headDim", options.model.headDim);
    object.Set("vocab", options.model.vocab);
    object.Set("context", options.model.context);
    object.Set("pages", options.pages);
    object.Set("pageSize", options.pageSize);
    object.Set("kvType", name(options.kvType));
    object.Set("kvBytes", static_cast<double>(runner->store().bytes()));
    object.Set("device", "cpu");
    object.Set("isa", name(options.model.isa));
    object.Set("threads", options.model.threads);
    object.Set("runtimeVersion", runner->model().runtimeVersion());
    return object;
  });
}

Napi::Value RunnerHandle::newSequence(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value { return Napi::Number::New(info.Env(), open().newSequence()); });
}

void RunnerHandle::release(const Napi::CallbackInfo& info) {
  guarded(info.Env(), [&] {
    const int32_t id = argument(info, 0, "id");
    open().release(id);
  });
}

Napi::Value RunnerHandle::fork(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const int32_t id = argument(info, 0, "id");
    const int32_t length = argument(info, 1, "length");
    return Napi::Number::New(info.Env(), open().fork(id, length));
  });
}

void RunnerHandle::splice(const Napi::CallbackInfo& info) {
  guarded(info.Env(), [&] {
    const int32_t id = argument(info, 0, "id");
    if (!info[1].IsArray()) throw Error("BAD_ARGUMENT", "splices must be an array.");
    const auto array = info[1].As<Napi::Array>();
    std::vector<CellSplice> splices;
    for (uint32_t i = 0; i < array.Length(); i++) {
      if (!array.Get(i).IsObject()) throw Error("BAD_ARGUMENT", "A splice must be an object.");
      const auto splice = array.Get(i).As<Napi::Object>();
      splices.push_back({integer(splice, "start"), integer(splice, "end"), integer(splice, "count")});
    }
    open().splice(id, splices);
  });
}

void RunnerHandle::adopt(const Napi::CallbackInfo& info) {
  guarded(info.Env(), [&] {
    const int32_t id = argument(info, 0, "id");
    const int32_t from = argument(info, 1, "from");
    const int32_t start = argument(info, 2, "start");
    const int32_t end = argument(info, 3, "end");
    open().adopt(id, from, start, end);
  });
}

Napi::Value RunnerHandle::step(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    if (!info[0].IsArray()) throw Error("BAD_ARGUMENT", "entries must be an array.");
    const auto array = info[0].As<Napi::Array>();
    std::vector<StepEntry> entries;
    for (uint32_t i = 0; i < array.Length(); i++) entries.push_back(stepEntry(array.Get(i)));
    auto* work = new StepWork(env, *this, open().prepare(std::move(entries)));
    const Napi::Promise promise = work->promise();
    work->Queue();
    return promise;
  });
}

Napi::Value RunnerHandle::sequence(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const int32_t id = argument(info, 0, "id");
    const SequenceInfo sequence = open().cache().info(id);
    Napi::Object object = Napi::Object::New(env);
    object.Set("length", sequence.length);
    object.Set("gapTokens", sequence.gapTokens);
    object.Set("exactLength", sequence.exactLength);
    object.Set("deltas", sequence.deltas);
    return object;
  });
}

Napi::Value RunnerHandle::stats(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const RunnerStats stats = open().stats();
    Napi::Object object = Napi::Object::New(env);
    object.Set("pagesFree", stats.cache.pagesFree);
    object.Set("pagesLent", stats.cache.pagesLent);
    object.Set("pages", stats.cache.pages);
    object.Set("sequences", stats.cache.sequences);
    object.Set("cells", static_cast<double>(stats.cache.cells));
    object.Set("gapTokens", static_cast<double>(stats.cache.gapTokens));
    object.Set("steps", static_cast<double>(stats.steps));
    object.Set("tokensComputed", static_cast<double>(stats.tokensComputed));
    return object;
  });
}

void RunnerHandle::check(const Napi::CallbackInfo& info) {
  guarded(info.Env(), [&] {
    std::string all;
    for (const std::string& violation : open().cache().violations()) all += violation + " ";
    if (!all.empty()) throw Error("BAD_ARGUMENT", all);
  });
}

Napi::Value RunnerHandle::inspect(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const int32_t id = argument(info, 0, "id");
    const Cells cells = open().cache().cells(id);
    Napi::Object object = Napi::Object::New(env);
    object.Set("slots", typedArray<Napi::Int32Array>(env, cells.slots));
    object.Set("births", typedArray<Napi::Int32Array>(env, cells.births));
    object.Set("tokens", typedArray<Napi::Int32Array>(env, cells.tokens));
    object.Set("filled", typedArray<Napi::Uint8Array>(env, cells.filled));
    if (info[1].IsNumber()) {
      const int32_t layer = argument(info, 1, "layer");
      if (layer < 0 || layer >= runner->options().model.layers) {
        throw error("BAD_ARGUMENT", "Layer %d is not one of %d.", layer, runner->options().model.layers);
      }
      object.Set("keys", typedArray<Napi::Float32Array>(env, runner->store().read(layer, cells.slots, true)));
      object.Set("values", typedArray<Napi::Float32Array>(env, runner->store().read(layer, cells.slots, false)));
    }
    return object;
  });
}

Napi::Value RunnerHandle::close(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    if (runner != nullptr && runner->stepping()) {
      throw Error("ENGINE_BUSY", "The engine is in a step; close must wait for its end.");
    }
    auto* work = new CloseWork(env, std::move(runner));
    const Napi::Promise promise = work->promise();
    work->Queue();
    return promise;
  });
}

Napi::Value openRunner(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    if (!info[0].IsObject()) throw Error("BAD_ARGUMENT", "open needs an object.");
    auto* work = new OpenWork(env, runnerOptions(info[0].As<Napi::Object>()));
    const Napi::Promise promise = work->promise();
    work->Queue();
    return promise;
  });
}

}  // namespace

Napi::Object initialise(Napi::Env env, Napi::Object exports) {
  auto* instance = new Instance;
  instance->handleClass = Napi::Persistent(RunnerHandle::define(env));
  env.SetInstanceData(instance);
  exports.Set("open", Napi::Function::New(env, openRunner));
  return exports;
}

NODE_API_MODULE(pocket, initialise)

}  // namespace pocket
