// The border to JavaScript: turns values into plain structs once, calls the runner, turns results and errors
// back. Every call opens with the same lines: argument types, runner open; the runner itself refuses while a
// step is on. No exception leaves this file except as a JavaScript error with a code of src/errors.ts.
// Over 400 lines because each native call has one wrapper here and all of them share their conversions.
#include <napi.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "addon/async_work.h"
#include "addon/values.h"
#include "error.h"
#include "runtime/runner.h"

namespace pocket {

namespace {

// ---- the runner's handle ----

class RunnerHandle : public Napi::ObjectWrap<RunnerHandle> {
 public:
  static Napi::Function define(Napi::Env env) {
    return DefineClass(
        env, "Runner",
        {InstanceMethod<&RunnerHandle::describe>("describe"), InstanceMethod<&RunnerHandle::newSequence>("newSequence"),
         InstanceMethod<&RunnerHandle::release>("release"), InstanceMethod<&RunnerHandle::fork>("fork"),
         InstanceMethod<&RunnerHandle::splice>("splice"), InstanceMethod<&RunnerHandle::adopt>("adopt"),
         InstanceMethod<&RunnerHandle::step>("step"), InstanceMethod<&RunnerHandle::sequence>("sequence"),
         InstanceMethod<&RunnerHandle::stats>("stats"), InstanceMethod<&RunnerHandle::profile>("profile"),
         InstanceMethod<&RunnerHandle::check>("check"), InstanceMethod<&RunnerHandle::inspect>("inspect"),
         InstanceMethod<&RunnerHandle::save>("save"), InstanceMethod<&RunnerHandle::load>("load"),
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
  Napi::Value profile(const Napi::CallbackInfo& info);
  void check(const Napi::CallbackInfo& info);
  Napi::Value inspect(const Napi::CallbackInfo& info);
  Napi::Value save(const Napi::CallbackInfo& info);
  Napi::Value load(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);
};

// Keeps the handle alive while the step runs, so that a collected handle never frees a pool in use.
class StepWork final : public Work {
 public:
  StepWork(Napi::Env env, RunnerHandle& handle, std::unique_ptr<Runner::Step> step)
      : Work(env), handle_(Napi::Persistent(handle.Value())), runner_(*handle.runner), step_(std::move(step)) {}

 private:
  void work() override { runner_.compute(*step_); }
  void undo() noexcept override { runner_.abandon(*step_); }
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

// Both profile of a load and a save keep the handle alive, as a step does.
class SaveWork final : public Work {
 public:
  SaveWork(Napi::Env env, RunnerHandle& handle, std::unique_ptr<Runner::Save> save)
      : Work(env), handle_(Napi::Persistent(handle.Value())), runner_(*handle.runner), save_(std::move(save)) {}

 private:
  void work() override { runner_.write(*save_); }
  void undo() noexcept override { runner_.endSave(*save_); }
  Napi::Value result(Napi::Env env) override {
    runner_.endSave(*save_);
    return env.Undefined();
  }

  Napi::ObjectReference handle_;
  Runner& runner_;
  std::unique_ptr<Runner::Save> save_;
};

class FillWork final : public Work {
 public:
  FillWork(Napi::Env env, const Napi::Promise::Deferred& deferred, Napi::ObjectReference handle, Runner& runner,
           std::unique_ptr<Runner::Load> load)
      : Work(env, deferred), handle_(std::move(handle)), runner_(runner), load_(std::move(load)) {}

 private:
  void work() override { runner_.fill(*load_); }
  void undo() noexcept override { runner_.abandonLoad(*load_); }
  Napi::Value result(Napi::Env env) override { return Napi::Number::New(env, runner_.endLoad(*load_)); }

  Napi::ObjectReference handle_;
  Runner& runner_;
  std::unique_ptr<Runner::Load> load_;
};

// Checks header and cells, then takes pages on the JavaScript thread and leaves the rest to FillWork.
class LoadWork final : public Work {
 public:
  LoadWork(Napi::Env env, RunnerHandle& handle, std::unique_ptr<Runner::Load> load)
      : Work(env), handle_(Napi::Persistent(handle.Value())), runner_(*handle.runner), load_(std::move(load)) {}

 private:
  void work() override { runner_.read(*load_); }
  void undo() noexcept override { runner_.abandonLoad(*load_); }
  Napi::Value result(Napi::Env env) override {
    try {
      guarded(env, [&] { runner_.reserve(*load_); });
    } catch (const Napi::Error& failure) {
      undo();
      deferred().Reject(failure.Value());
      return {};
    }
    auto* rest = new FillWork(env, deferred(), std::move(handle_), runner_, std::move(load_));
    rest->Queue();
    return {};
  }

  Napi::ObjectReference handle_;
  Runner& runner_;
  std::unique_ptr<Runner::Load> load_;
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
    object.Set("maxDraftTokens", kMaxDraftTokens);
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
    object.Set("pagesUsed", stats.cache.pagesUsed);
    object.Set("pages", stats.cache.pages);
    object.Set("sequences", stats.cache.sequences);
    object.Set("cells", static_cast<double>(stats.cache.cells));
    object.Set("gapTokens", static_cast<double>(stats.cache.gapTokens));
    object.Set("steps", static_cast<double>(stats.steps));
    object.Set("tokensComputed", static_cast<double>(stats.tokensComputed));
    return object;
  });
}

Napi::Value RunnerHandle::profile(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    Napi::Array array = Napi::Array::New(env);
    for (const ProfileEntry& entry : open().profile().entries()) {
      Napi::Object object = Napi::Object::New(env);
      object.Set("name", entry.name);
      object.Set("runs", static_cast<double>(entry.runs));
      object.Set("ms", static_cast<double>(entry.nanoseconds) * 1e-6);
      array.Set(array.Length(), object);
    }
    return array;
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

Napi::Value RunnerHandle::save(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const int32_t id = argument(info, 0, "id");
    const std::string file = textArgument(info, 1, "file");
    auto* work = new SaveWork(env, *this, open().beginSave(id, file));
    const Napi::Promise promise = work->promise();
    work->Queue();
    return promise;
  });
}

Napi::Value RunnerHandle::load(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    const std::string file = textArgument(info, 0, "file");
    auto* work = new LoadWork(env, *this, open().beginLoad(file));
    const Napi::Promise promise = work->promise();
    work->Queue();
    return promise;
  });
}

Napi::Value RunnerHandle::close(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  return guarded(env, [&]() -> Napi::Value {
    if (runner != nullptr && runner->stepping()) {
      throw Error("ENGINE_BUSY", "The engine is in a step; close must wait for its end.");
    }
    if (runner != nullptr && runner->files() > 0) {
      throw error("ENGINE_BUSY", "The engine is in a step; close must wait for %d files.", runner->files());
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
