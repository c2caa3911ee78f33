// One model with its pages: puts cache, model and sampler in step. A step has three parts, so that all
// bookkeeping stays on the caller's thread: prepare (decide), compute (do, on any thread), commit (record).
// Between prepare and commit nothing else may change cells; the runner refuses with ENGINE_BUSY.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache.h"
#include "kv_store.h"
#include "model.h"
#include "sampler.h"

namespace pocket {

struct RunnerOptions {
  ModelOptions model;
  int32_t pages = 0;
  int32_t pageSize = 0;
  KvType kvType = KvType::kF16;
};

struct StepEntry {
  int32_t sequence = 0;
  std::vector<int32_t> tokens;
  std::optional<Sampling> sample;
  int32_t generatedFrom = 0;
  int32_t top = 0;
  // One per token, or empty: the id whose logprob after that token is wanted, -1 for none.
  std::vector<int32_t> targets;
  int32_t targetTop = 0;
};

using Ranked = std::vector<std::pair<int32_t, float>>;  // (token, logprob), likeliest first

struct StepOutcome {
  Sampled sampled;
  Ranked top;
  std::vector<float> targetLogprobs;
  Ranked targetTop;     // targetTop per wanted target, in order
  std::string failure;  // why this entry has no token although one was asked for
};

struct RunnerStats {
  CacheStats cache;
  int64_t steps = 0;
  int64_t tokensComputed = 0;
};

class Runner {
 public:
  // What one step needs and yields; made by prepare, filled by compute.
  struct Step {
    std::vector<StepEntry> entries;
    std::vector<Fill> fills;
    Batch batch;
    std::vector<int64_t> tokens;
    std::vector<int64_t> wanted;                 // rows whose logits are needed
    std::vector<std::vector<int32_t>> histories;  // per entry; empty unless penalties look at it
    std::vector<StepOutcome> outcomes;
    double milliseconds = 0;
  };

  explicit Runner(const RunnerOptions& options);

  int32_t newSequence();
  void release(int32_t id);
  int32_t fork(int32_t id, int32_t length);
  void splice(int32_t id, const std::vector<CellSplice>& splices);
  void adopt(int32_t id, int32_t from, int32_t start, int32_t end);

  // Throws BAD_ARGUMENT (empty step, token outside the vocabulary, sampling while a gap stays open, …) and has
  // then changed nothing.
  std::unique_ptr<Step> prepare(std::vector<StepEntry> entries);
  // Throws RUNTIME_FAILED; the step must then be abandoned.
  void compute(Step& step);
  void commit(const Step& step) noexcept;
  void abandon() noexcept { stepping_ = false; }

  bool stepping() const { return stepping_; }
  RunnerStats stats() const;
  const RunnerOptions& options() const { return options_; }
  const Cache& cache() const { return cache_; }
  const KvStore& store() const { return store_; }
  const Model& model() const { return model_; }

 private:
  void requireIdle(const char* what) const;
  void requireFit(const StepEntry& entry) const;
  void collect(Step& step, size_t entry, float* logits, size_t& row);

  RunnerOptions options_;
  Cache cache_;
  KvStore store_;
  Model model_;
  Sampler sampler_;
  bool stepping_ = false;
  int64_t steps_ = 0;
  int64_t tokensComputed_ = 0;
};

}  // namespace pocket
