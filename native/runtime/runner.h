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
  // What the sampled token and its followers may turn out to be; needs `sample` and no mask. Each is computed as a
  // row behind `tokens`, and each row before it sampled with the draw that it has in an answer made token by token:
  // what is sampled does not depend on what was proposed. Fewer are computed where pages or the context run out, and
  // never more than make kDecodeRows rows with `tokens`.
  std::vector<int32_t> proposals;
  bool logprob = true;  // false: that of the sampled tokens is not worked out
  int32_t generatedFrom = 0;
  int32_t top = 0;
  std::vector<int32_t> mask;  // as Mask; empty: every token may be sampled
  // One per token, or empty: the id whose logprob after that token is wanted, -1 for none.
  std::vector<int32_t> targets;
  int32_t targetTop = 0;
  bool distributions = false;  // of each wanted target's row, the logprobs of the whole vocabulary
};

using Ranked = std::vector<std::pair<int32_t, float>>;  // (token, logprob), likeliest first

struct Choice {
  Sampled sampled;
  Ranked top;
};

struct StepOutcome {
  // Proposals that were sampled, in order: they are cells now.
  std::vector<Choice> accepted;
  int32_t proposed = 0;  // proposals that were computed
  Choice last;           // of the first row whose token was not proposed; it has no cell
  std::vector<float> targetLogprobs;
  Ranked targetTop;     // targetTop per wanted target, in order
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
  // What one step needs and yields; made by prepare, filled by compute.
  struct Step {
    std::vector<StepEntry> entries;
    std::vector<Fill> fills;
    std::vector<Guess> guesses;  // per entry
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

  // Opens the cells of proposals. Throws BAD_ARGUMENT (empty step, token outside the vocabulary, sampling while a gap
  // stays open, …) and has then changed nothing.
  std::unique_ptr<Step> prepare(std::vector<StepEntry> entries);
  // Throws RUNTIME_FAILED; the step must then be abandoned.
  void compute(Step& step);
  // Both end the step: proposals that were not sampled leave no trace in the cells.
  void commit(const Step& step) noexcept;
  void abandon(const Step& step) noexcept;

  // KV files. begin and end are bookkeeping on the caller's thread; in between, write, read and fill may run on any
  // other, also while a step computes: the pages of a capture are nobody's to write, and those of a file being
  // read are nobody else's.
  struct Save {
    int32_t capture = 0;
    std::string path;
    KvFileCells cells;
    std::vector<int32_t> slots;
  };
  struct Load {
    std::string path;
    std::unique_ptr<KvFileReader> reader;
    int32_t sequence = 0;  // unknown to anybody until the load has ended
    std::vector<int32_t> slots;
  };
  std::unique_ptr<Save> beginSave(int32_t id, const std::string& path);
  void write(const Save& save) const;  // throws DISK_FULL, KV_FILE_UNWRITABLE
  void endSave(const Save& save) noexcept;
  std::unique_ptr<Load> beginLoad(const std::string& path);
  void read(Load& load) const;     // throws KV_FILE_REFUSED; nothing is lent yet
  void reserve(Load& load);        // on the caller's thread; throws CACHE_FULL
  void fill(const Load& load);     // throws KV_FILE_REFUSED
  int32_t endLoad(const Load& load) noexcept;
  void abandonLoad(const Load& load) noexcept;
  // Saves and loads that have begun and not ended.
  int files() const { return files_; }

  bool stepping() const { return stepping_; }
  RunnerStats stats() const;
  // The model's, and `sampler`: reading logits, whatever was wanted of them. Throws ENGINE_BUSY.
  const Parts& parts() const;
  const RunnerOptions& options() const { return options_; }
  const Cache& cache() const { return cache_; }
  const KvStore& store() const { return store_; }
  const Model& model() const { return model_; }

 private:
  void requireIdle(const char* what) const;
  KvFileIdentity fileIdentity() const;
  void requireFit(const StepEntry& entry) const;
  void open(Step& step);
  void pack(Step& step);
  void collect(Step& step, size_t entry, float* logits, size_t& row);
  void choose(Step& step, size_t entry, float* logits);

  RunnerOptions options_;
  Cache cache_;
  KvStore store_;
  Model model_;
  Sampler sampler_;
  Part& sampling_;
  bool stepping_ = false;
  int files_ = 0;
  int64_t steps_ = 0;
  int64_t tokensComputed_ = 0;
};

}  // namespace pocket
