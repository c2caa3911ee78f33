#include "runtime/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "error.h"

namespace pocket {

namespace {

KvShape kvShape(const RunnerOptions& options) {
  KvShape shape;
  shape.layers = options.model.layers;
  shape.kvHeads = options.model.kvHeads;
  shape.headDim = options.model.headDim;
  shape.slots = static_cast<int64_t>(options.pages) * options.pageSize;
  shape.type = options.kvType;
  return shape;
}

bool usesHistory(const Sampling& sampling) {
  return sampling.repetitionPenalty != 1 || sampling.frequencyPenalty != 0 || sampling.presencePenalty != 0;
}

// A logit that is not finite counts as -inf, as in the sampler.
void appendLogprobs(std::vector<float>& to, const float* logits, size_t vocab, float logSumExp) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < vocab; i++) to.push_back(std::isfinite(logits[i]) ? logits[i] - logSumExp : none);
}

}  // namespace

Runner::Runner(const RunnerOptions& options)
    : options_(options),
      cache_(options.pages, options.pageSize, options.model.context),
      store_(kvShape(options)),
      model_(options.model, store_),
      sampler_(options.model.vocab, rowLoopsFor(options.model.isa)),
      sampling_(model_.profiler().add("sampler")) {}

void Runner::requireIdle(const char* what) const {
  if (stepping_) throw error("ENGINE_BUSY", "The engine is in a step; %s must wait for its end.", what);
}

int32_t Runner::newSequence() {
  requireIdle("newSequence");
  return cache_.create();
}

void Runner::release(int32_t id) {
  requireIdle("release");
  cache_.release(id);
}

int32_t Runner::fork(int32_t id, int32_t length) {
  requireIdle("fork");
  return cache_.fork(id, length);
}

void Runner::splice(int32_t id, const std::vector<CellSplice>& splices) {
  requireIdle("splice");
  cache_.splice(id, splices);
}

void Runner::adopt(int32_t id, int32_t from, int32_t start, int32_t end) {
  requireIdle("adopt");
  cache_.adopt(id, from, start, end);
}

void Runner::requireFit(const StepEntry& entry) const {
  const int vocab = options_.model.vocab;
  for (const int32_t token : entry.tokens) {
    if (token < 0 || token >= vocab) {
      throw error("BAD_ARGUMENT", "Token %d is outside the vocabulary of %d.", token, vocab);
    }
  }
  for (const int32_t target : entry.targets) {
    if (target < -1 || target >= vocab) {
      throw error("BAD_ARGUMENT", "Target %d is outside the vocabulary of %d.", target, vocab);
    }
  }
  if (!entry.targets.empty() && entry.targets.size() != entry.tokens.size()) {
    throw error("BAD_ARGUMENT", "A step entry has %zu targets for %zu tokens.", entry.targets.size(),
                entry.tokens.size());
  }
  for (const int32_t token : entry.draftTokens) {
    if (token < 0 || token >= vocab) {
      throw error("BAD_ARGUMENT", "Draft token %d is outside the vocabulary of %d.", token, vocab);
    }
  }
  if (!entry.draftTokens.empty() && (!entry.sample || !entry.mask.empty())) {
    throw Error("BAD_ARGUMENT", "A step entry with draft tokens must sample and must not have a mask.");
  }
  const int32_t count = static_cast<int32_t>(entry.tokens.size());
  if (entry.sample && !cache_.completes(entry.sequence, count)) {
    throw error("BAD_ARGUMENT",
                "Sequence %d cannot be sampled: after these %d tokens a gap is open or the last of them is not its "
                "last cell.",
                entry.sequence, count);
  }
}

std::unique_ptr<Runner::Step> Runner::prepare(std::vector<StepEntry> entries) {
  requireIdle("step");
  if (entries.empty()) throw Error("BAD_ARGUMENT", "A step needs at least one entry.");
  auto step = std::make_unique<Step>();
  step->entries = std::move(entries);
  for (const StepEntry& entry : step->entries) {
    step->fills.push_back({entry.sequence, entry.tokens.data(), static_cast<int32_t>(entry.tokens.size())});
  }
  cache_.plan(step->fills);
  for (const StepEntry& entry : step->entries) requireFit(entry);
  try {
    openDrafts(*step);
    pack(*step);
  } catch (...) {
    abandon(*step);
    throw;
  }
  stepping_ = true;
  return step;
}

// Opens cells for the draft tokens and appends those that fit to the entry's tokens: at most as many as keep the entry
// within kDecodeRows, so that its rows are batch-invariant.
void Runner::openDrafts(Step& step) {
  for (size_t i = 0; i < step.entries.size(); i++) {
    StepEntry& entry = step.entries[i];
    const size_t tokens = entry.tokens.size();
    const size_t free = tokens < size_t{kDecodeRows} ? size_t{kDecodeRows} - tokens : 0;
    const int32_t wanted = static_cast<int32_t>(std::min(entry.draftTokens.size(), free));
    step.drafts.push_back(wanted == 0 ? DraftCells{} : cache_.openDraft(entry.sequence, wanted));
    const int32_t count = step.drafts.back().count;
    entry.tokens.insert(entry.tokens.end(), entry.draftTokens.begin(), entry.draftTokens.begin() + count);
    step.fills[i].tokens = entry.tokens.data();
    step.fills[i].count += count;
  }
}

void Runner::pack(Step& step) {
  step.batch = cache_.plan(step.fills);
  int64_t row = 0;
  for (size_t i = 0; i < step.entries.size(); i++) {
    const StepEntry& entry = step.entries[i];
    step.tokens.insert(step.tokens.end(), entry.tokens.begin(), entry.tokens.end());
    for (size_t target = 0; target < entry.targets.size(); target++) {
      if (entry.targets[target] >= 0) step.wanted.push_back(row + static_cast<int64_t>(target));
    }
    row += static_cast<int64_t>(entry.tokens.size());
    const int64_t sampled = entry.sample ? 1 + step.drafts[i].count : 0;
    for (int64_t from = row - sampled; from < row; from++) step.wanted.push_back(from);
    step.histories.emplace_back();
    if (entry.sample && usesHistory(*entry.sample)) {
      step.histories.back() = cache_.history(entry.sequence, entry.tokens.data(), entry.tokens.size());
    }
  }
  step.outcomes.resize(step.entries.size());
}

void Runner::compute(Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  float* logits = model_.run(step.batch, step.tokens, step.wanted);
  {
    const ScopedTimer timed(sampling_);
    size_t row = 0;
    for (size_t entry = 0; entry < step.entries.size(); entry++) readLogits(step, entry, logits, row);
  }
  step.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Reads the logits of this entry's rows: targets first, then the sampled rows. Moves `row` past them.
void Runner::readLogits(Step& step, size_t index, float* logits, size_t& row) {
  const StepEntry& entry = step.entries[index];
  StepOutcome& outcome = step.outcomes[index];
  const size_t vocab = static_cast<size_t>(options_.model.vocab);
  for (const int32_t target : entry.targets) {
    if (target < 0) {
      outcome.targetLogprobs.push_back(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const float* values = logits + vocab * row++;
    const float sum = sampler_.logSumExp(values);
    outcome.targetLogprobs.push_back(values[target] - sum);
    const Ranked top = sampler_.top(values, entry.targetTop);
    outcome.targetTop.insert(outcome.targetTop.end(), top.begin(), top.end());
    if (entry.distributions) appendLogprobs(outcome.distributions, values, vocab, sum);
  }
  if (!entry.sample) return;
  sampleRows(step, index, logits + vocab * row);
  row += 1 + static_cast<size_t>(step.drafts[index].count);
}

// Samples the rows of one entry in order, until a sampled token differs from the draft.
void Runner::sampleRows(Step& step, size_t index, float* logits) {
  const StepEntry& entry = step.entries[index];
  StepOutcome& outcome = step.outcomes[index];
  const size_t vocab = static_cast<size_t>(options_.model.vocab);
  const std::vector<int32_t>& history = step.histories[index];
  const Mask mask{entry.mask.empty() ? nullptr : entry.mask.data(), static_cast<int32_t>(entry.mask.size())};
  const int32_t drafted = step.drafts[index].count;
  Sampling sampling = *entry.sample;
  for (int32_t i = 0; i <= drafted; i++, sampling.draw++) {
    float* values = logits + vocab * static_cast<size_t>(i);
    const int32_t unseen = history.empty() ? 0 : drafted - i;
    const History past{history.data(), static_cast<int32_t>(history.size()) - unseen, entry.generatedFrom};
    try {
      SampledToken token;
      if (entry.top > 0) token.top = sampler_.top(values, entry.top);
      token.sampled = sampler_.sample(values, sampling, past, mask, entry.logprob);
      outcome.last = std::move(token);
    } catch (const Error& failure) {
      // Only this entry fails; the others of the batch have their tokens. A failure behind an accepted draft token is
      // left to the next step: the draft token is taken back as the last sampled token, and sampling after it fails then.
      if (i == 0) outcome.failure = failure.what();
      else outcome.accepted.pop_back();
      break;
    }
    if (i == drafted || outcome.last.sampled.token != entry.draftTokens[static_cast<size_t>(i)]) break;
    outcome.accepted.push_back(outcome.last);
  }
  outcome.drafted = drafted;
}

void Runner::commit(const Step& step) noexcept {
  for (size_t i = 0; i < step.fills.size(); i++) {
    Fill fill = step.fills[i];
    const DraftCells& draft = step.drafts[i];
    const int32_t kept = static_cast<int32_t>(step.outcomes[i].accepted.size());
    fill.count -= draft.count - kept;
    cache_.commit(fill);
    if (draft.count > 0) cache_.rollbackDraft(fill.sequence, draft, kept);
  }
  stepping_ = false;
  steps_++;
  tokensComputed_ += static_cast<int64_t>(step.tokens.size());
}

void Runner::abandon(const Step& step) noexcept {
  for (size_t i = 0; i < step.drafts.size(); i++) {
    if (step.drafts[i].count > 0) cache_.rollbackDraft(step.entries[i].sequence, step.drafts[i], 0);
  }
  stepping_ = false;
}

RunnerStats Runner::stats() const { return {cache_.stats(), steps_, tokensComputed_}; }

const Profiler& Runner::profile() const {
  requireIdle("profile");
  return model_.profiler();
}

// ---- KV files ----

KvFileIdentity Runner::fileIdentity() const {
  if (options_.digest.empty()) {
    throw Error("BAD_ARGUMENT", "This runner was opened without a digest; KV files need one.");
  }
  return {options_.digest, options_.model.ropeBase, store_.shape()};
}

std::unique_ptr<Runner::Save> Runner::beginSave(int32_t id, const std::string& path) {
  fileIdentity();
  auto save = std::make_unique<Save>();
  save->path = path;
  save->capture = cache_.capture(id);
  files_++;
  try {
    Cells cells = cache_.cells(save->capture);
    save->cells = {std::move(cells.tokens), std::move(cells.births), cache_.info(save->capture).exactLength};
    save->slots = std::move(cells.slots);
  } catch (...) {
    endSave(*save);
    throw;
  }
  return save;
}

void Runner::write(const Save& save) const { writeKvFile(save.path, fileIdentity(), save.cells, save.slots, store_); }

void Runner::endSave(const Save& save) noexcept {
  cache_.release(save.capture);
  files_--;
}

std::unique_ptr<Runner::Load> Runner::beginLoad(const std::string& path) {
  fileIdentity();
  auto load = std::make_unique<Load>();
  load->path = path;
  files_++;
  return load;
}

void Runner::read(Load& load) const {
  load.reader = std::make_unique<KvFileReader>(load.path, fileIdentity(), options_.model.context, options_.model.vocab);
}

void Runner::reserve(Load& load) {
  load.sequence = cache_.open(static_cast<int32_t>(load.reader->cells().tokens.size()));
  load.slots = cache_.cells(load.sequence).slots;
}

void Runner::fill(const Load& load) { load.reader->read(load.slots, store_); }

int32_t Runner::endLoad(const Load& load) noexcept {
  const KvFileCells& cells = load.reader->cells();
  cache_.restore(load.sequence, cells.tokens, cells.births, cells.exactLength);
  files_--;
  return load.sequence;
}

void Runner::abandonLoad(const Load& load) noexcept {
  cache_.release(load.sequence);  // 0, which is never an id, if nothing was reserved
  files_--;
}

}  // namespace pocket
