// JavaScript values to plain structs and back, and errors to JavaScript errors with a code of src/errors.ts. Only
// addon/addon.cpp and its workers include it; nothing below them sees Napi.
#pragma once

#include <napi.h>

#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "runtime/runner.h"

namespace pocket {

inline Napi::Error toJs(Napi::Env env, const char* code, const std::string& message) {
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

inline double number(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsNumber()) throw error("BAD_ARGUMENT", "%s must be a number.", key);
  return value.As<Napi::Number>().DoubleValue();
}

inline int32_t integer(const Napi::Object& object, const char* key) {
  const double value = number(object, key);
  if (!(value >= -2147483648.0 && value <= 2147483647.0) || value != static_cast<int32_t>(value)) {
    throw error("BAD_ARGUMENT", "%s must be a 32-bit integer, not %g.", key, value);
  }
  return static_cast<int32_t>(value);
}

inline std::string text(const Napi::Object& object, const char* key) {
  const Napi::Value value = object.Get(key);
  if (!value.IsString()) throw error("BAD_ARGUMENT", "%s must be a string.", key);
  return value.As<Napi::String>().Utf8Value();
}

inline int32_t argument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  const Napi::Value value = info[index];
  if (!value.IsNumber()) throw error("BAD_ARGUMENT", "%s must be a number.", name);
  return value.As<Napi::Number>().Int32Value();
}

inline std::string textArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  const Napi::Value value = info[index];
  if (!value.IsString()) throw error("BAD_ARGUMENT", "%s must be a string.", name);
  return value.As<Napi::String>().Utf8Value();
}

inline std::vector<int32_t> integers(const Napi::Value& value, const char* name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
    throw error("BAD_ARGUMENT", "%s must be an Int32Array.", name);
  }
  const auto array = value.As<Napi::Int32Array>();
  return {array.Data(), array.Data() + array.ElementLength()};
}

inline const std::pair<const char*, KvType> kvTypes[] = {
    {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"bf16", KvType::kBf16}, {"int8", KvType::kInt8}};

inline KvType kvType(const std::string& wanted) {
  for (const auto& [label, type] : kvTypes) {
    if (wanted == label) return type;
  }
  throw error("BAD_ARGUMENT", "kvType is f32, f16, bf16 or int8, not %s.", wanted.c_str());
}

inline RunnerOptions runnerOptions(const Napi::Object& from) {
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
  if (shape.Has("digest") && !shape.Get("digest").IsUndefined()) options.digest = text(shape, "digest");
  if (options.digest.size() > kDigestMax) {
    throw error("BAD_ARGUMENT", "digest has %zu bytes, more than %zu.", options.digest.size(), kDigestMax);
  }
  options.model.threads = integer(from, "threads");
  const Napi::Value isa = from.Get("isa");
  options.model.isa = isaNamed(isa.IsUndefined() ? "" : text(from, "isa"));
  options.pages = integer(from, "pages");
  options.pageSize = integer(from, "pageSize");
  options.kvType = kvType(text(from, "kvType"));
  if (options.pageSize <= 0 || options.pageSize % kTile != 0 || options.pages <= 0 || options.model.threads <= 0) {
    throw error("BAD_ARGUMENT",
                "%d pages of %d tokens on %d threads: the page size is a multiple of %d, the others positive.",
                options.pages, options.pageSize, options.model.threads, kTile);
  }
  return options;
}

inline Sampling sampling(const Napi::Object& from) {
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

inline int32_t alternatives(const Napi::Object& from, const char* key) {
  const int32_t count = from.Has(key) && !from.Get(key).IsUndefined() ? integer(from, key) : 0;
  if (count < 0 || count > 100) throw error("BAD_ARGUMENT", "%s is 0 to 100, not %d.", key, count);
  return count;
}

inline StepEntry stepEntry(const Napi::Value& value) {
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
    if (sample.Has("logprob") && sample.Get("logprob").IsBoolean()) {
      entry.logprob = sample.Get("logprob").As<Napi::Boolean>().Value();
    }
    if (sample.Has("mask") && !sample.Get("mask").IsUndefined()) {
      entry.mask = integers(sample.Get("mask"), "mask");
      if (entry.mask.empty()) throw Error("BAD_ARGUMENT", "The mask has no words, so that no token may be sampled.");
    }
  }
  if (from.Has("draftTokens") && !from.Get("draftTokens").IsUndefined()) {
    entry.draftTokens = integers(from.Get("draftTokens"), "draftTokens");
  }
  if (from.Has("targets") && !from.Get("targets").IsUndefined()) {
    entry.targets = integers(from.Get("targets"), "targets");
    entry.targetTop = alternatives(from, "targetTop");
    const Napi::Value whole = from.Get("distributions");
    entry.distributions = whole.IsBoolean() && whole.As<Napi::Boolean>().Value();
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

inline std::pair<Napi::Int32Array, Napi::Float32Array> ranked(Napi::Env env, const Ranked& from) {
  Napi::Int32Array tokens = Napi::Int32Array::New(env, from.size());
  Napi::Float32Array logprobs = Napi::Float32Array::New(env, from.size());
  for (size_t i = 0; i < from.size(); i++) {
    tokens[i] = from[i].first;
    logprobs[i] = from[i].second;
  }
  return {tokens, logprobs};
}

inline Napi::Object sampledTokenObject(Napi::Env env, const SampledToken& token) {
  Napi::Object object = Napi::Object::New(env);
  object.Set("token", token.sampled.token);
  object.Set("logprob", token.sampled.logprob);
  const auto [topTokens, topLogprobs] = ranked(env, token.top);
  object.Set("topTokens", topTokens);
  object.Set("topLogprobs", topLogprobs);
  return object;
}

inline Napi::Object outcomeObject(Napi::Env env, const StepOutcome& outcome) {
  Napi::Object object = sampledTokenObject(env, outcome.last);
  if (outcome.drafted > 0) {
    Napi::Array accepted = Napi::Array::New(env, outcome.accepted.size());
    for (size_t i = 0; i < outcome.accepted.size(); i++) {
      accepted.Set(static_cast<uint32_t>(i), sampledTokenObject(env, outcome.accepted[i]));
    }
    object.Set("accepted", accepted);
    object.Set("drafted", outcome.drafted);
  }
  object.Set("targetLogprobs", typedArray<Napi::Float32Array>(env, outcome.targetLogprobs));
  const auto [targetTokens, targetLogprobs] = ranked(env, outcome.targetTop);
  object.Set("targetTopTokens", targetTokens);
  object.Set("targetTopLogprobs", targetLogprobs);
  if (!outcome.distributions.empty()) {
    object.Set("distributions", typedArray<Napi::Float32Array>(env, outcome.distributions));
  }
  if (!outcome.failure.empty()) object.Set("failure", outcome.failure);
  return object;
}

}  // namespace pocket
