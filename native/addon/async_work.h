// A promise settled from a worker thread: the base of everything that addon/addon.cpp does off the JavaScript thread.
#pragma once

#include <napi.h>

#include <string>

#include "addon/values.h"
#include "error.h"

namespace pocket {

// A promise settled from a worker thread. `Execute` failures keep their code.
class Work : public Napi::AsyncWorker {
 public:
  explicit Work(Napi::Env env) : Work(env, Napi::Promise::Deferred::New(env)) {}
  // Settles a promise that earlier work was asked for.
  Work(Napi::Env env, const Napi::Promise::Deferred& deferred) : Napi::AsyncWorker(env), deferred_(deferred) {}
  Napi::Promise promise() const { return deferred_.Promise(); }

 protected:
  virtual void work() = 0;
  // On the JavaScript thread. An empty value: the promise is settled elsewhere, with deferred().
  virtual Napi::Value result(Napi::Env env) = 0;
  // Called on the JavaScript thread when work() threw.
  virtual void undo() noexcept {}
  const Napi::Promise::Deferred& deferred() const { return deferred_; }

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

  void OnOK() override {
    const Napi::Value value = result(Env());
    if (!value.IsEmpty()) deferred_.Resolve(value);
  }
  void OnError(const Napi::Error& failure) override {
    undo();
    deferred_.Reject(toJs(Env(), code_, failure.Message()).Value());
  }

  Napi::Promise::Deferred deferred_;
  const char* code_ = "RUNTIME_FAILED";
};

}  // namespace pocket
