// One model with its KV pages: joins cache, KV store, model and sampler. A step has three phases: prepare and commit do
// the bookkeeping on the caller's thread, compute runs the model on any thread. Calls that would change cells between
// prepare and commit fail with ENGINE_BUSY.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "kv/file.h"
#include "kv/store.h"
#include "runtime/model.h"
#include "sampler/sampler.h"

namespace pocket {

struct RunnerOptions {
  ModelOptions model;
  int32_t pages = 0;
  int32_t pageSize = 0;
  KvType kvType = KvType::kF16;
  std::string digest;  // of what computes the keys; empty: no KV files
};

struct StepEntry {
  int32_t sequence = 0;
  std::vector<int32_t> tokens;
  std::optional<Sampling> sample;
  // Guesses at the sampled token and its successors; needs `sample` and no mask. Each is computed as a row behind
  // `tokens`. Every row is sampled with the draw number that it would have without drafts, so that the sampled tokens
  // do not depend on the drafts. Fewer are computed if pages or the context run out, and never more than give
  // kDecodeRows rows together with `tokens`.
  std::vector<int32_t> draftTokens;
  bool logprob = true;  // of the sampled tokens
  int32_t generatedFrom = 0;
  int32_t top = 0;
  std::vector<int32_t> mask;  // as Mask; empty: every token may be sampled
  // One per token, or empty: the id whose logprob after that token is wanted, -1 for none.
  std::vector<int32_t> targets;
  int32_t targetTop = 0;
  bool distributions = false;  // of each wanted target's row, the logprobs of the whole vocabulary
};

using Ranked = std::vector<std::pair<int32_t, float>>;  // (token, logprob), likeliest first

struct SampledToken {
  Sampled sampled;
  Ranked top;
};

struct StepOutcome {
  // Draft tokens that were sampled, in order; their cells stay.
  std::vector<SampledToken> accepted;
  int32_t drafted = 0;  // draft tokens that were computed
  SampledToken last;  // the first sampled token that was not a draft token; it has no cell yet
  std::vector<float> targetLogprobs;
  Ranked targetTop;  // targetTop per wanted target, in order
  std::vector<float> distributions;  // (wanted targets, vocab) if asked for
  std::string failure;  // why this entry has no token although one was asked for
};

struct RunnerStats {
  CacheStats cache;
  int64_t steps = 0;
  int64_t tokensComputed = 0;
};

class Runner {
 public:
  // Input and output of a step: created by prepare, completed by compute.
  struct Step {
    std::vector<StepEntry> entries;
    std::vector<Fill> fills;
    std::vector<DraftCells> drafts;  // per entry
    Batch batch;
    std::vector<int64_t> tokens;
    std::vector<int64_t> wanted;  // rows whose logits are needed
    std::vector<std::vector<int32_t>> histories;  // per entry; empty unless penalties need it
    std::vector<StepOutcome> outcomes;
    double milliseconds = 0;
  };

  explicit Runner(const RunnerOptions& options);

  int32_t newSequence();
  void release(int32_t id);
  int32_t fork(int32_t id, int32_t length);
  void splice(int32_t id, const std::vector<CellSplice>& splices);
  void adopt(int32_t id, int32_t from, int32_t start, int32_t end);

  // Opens the cells of draft tokens. Throws BAD_ARGUMENT (empty step, token outside the vocabulary, sampling while a gap
  // stays open, …) and has then changed nothing.
  std::unique_ptr<Step> prepare(std::vector<StepEntry> entries);
  // Throws RUNTIME_FAILED; the step must then be abandoned.
  void compute(Step& step);
  // Both end the step and take back the cells of draft tokens that were not sampled.
  void commit(const Step& step) noexcept;
  void abandon(const Step& step) noexcept;

  // KV files. begin and end do the bookkeeping on the caller's thread. Between them write, read and fill may run on any
  // thread, also during a step: pages of a capture are never written, and pages of a load belong to no other sequence.
  struct Save {
    int32_t capture = 0;
    std::string path;
    KvFileCells cells;
    std::vector<int32_t> slots;
  };
  struct Load {
    std::string path;
    std::unique_ptr<KvFileReader> reader;
    int32_t sequence = 0;  // returned to the caller when the load has ended
    std::vector<int32_t> slots;
  };
  std::unique_ptr<Save> beginSave(int32_t id, const std::string& path);
  void write(const Save& save) const;  // throws DISK_FULL, KV_FILE_UNWRITABLE
  void endSave(const Save& save) noexcept;
  std::unique_ptr<Load> beginLoad(const std::string& path);
  void read(Load& load) const;  // throws KV_FILE_REFUSED; no page is allocated yet
  void reserve(Load& load);  // on the caller's thread; throws CACHE_FULL
  void fill(const Load& load);  // throws KV_FILE_REFUSED
  int32_t endLoad(const Load& load) noexcept;
  void abandonLoad(const Load& load) noexcept;
  // Saves and loads that have begun and not ended.
  int files() const { return files_; }

  bool stepping() const { return stepping_; }
  RunnerStats stats() const;
  // The entries of the model and `sampler`, all work on logits. Throws ENGINE_BUSY.
  const Profiler& profile() const;
  const RunnerOptions& options() const { return options_; }
  const Cache& cache() const { return cache_; }
  const KvStore& store() const { return store_; }
  const Model& model() const { return model_; }

 private:
  void requireIdle(const char* what) const;
  KvFileIdentity fileIdentity() const;
  void requireFit(const StepEntry& entry) const;
  void openDrafts(Step& step);
  void pack(Step& step);
  void readLogits(Step& step, size_t entry, float* logits, size_t& row);
  void sampleRows(Step& step, size_t entry, float* logits);

  RunnerOptions options_;
  Cache cache_;
  KvStore store_;
  Model model_;
  Sampler sampler_;
  ProfileEntry& sampling_;
  bool stepping_ = false;
  int files_ = 0;
  int64_t steps_ = 0;
  int64_t tokensComputed_ = 0;
};

}  // namespace pocket
