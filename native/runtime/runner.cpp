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

bool looksBack(const Sampling& sampling) {
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
      sampling_(model_.parts().add("sampler")) {}

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
  for (const int32_t token : entry.proposals) {
    if (token < 0 || token >= vocab) {
      throw error("BAD_ARGUMENT", "Proposal %d is outside the vocabulary of %d.", token, vocab);
    }
  }
  if (!entry.proposals.empty() && (!entry.sample || !entry.mask.empty())) {
    throw Error("BAD_ARGUMENT", "A step entry with proposals samples, and its tokens are not masked.");
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
    open(*step);
    pack(*step);
  } catch (...) {
    abandon(*step);
    throw;
  }
  stepping_ = true;
  return step;
}

// Opens cells for the proposals and puts what found room behind the entry's tokens: never so many that rows would lose
// the bits they have alone.
void Runner::open(Step& step) {
  for (size_t i = 0; i < step.entries.size(); i++) {
    StepEntry& entry = step.entries[i];
    const size_t tokens = entry.tokens.size();
    const size_t room = tokens < size_t{kDecodeRows} ? size_t{kDecodeRows} - tokens : 0;
    const int32_t wanted = static_cast<int32_t>(std::min(entry.proposals.size(), room));
    step.guesses.push_back(wanted == 0 ? Guess{} : cache_.extend(entry.sequence, wanted));
    const int32_t count = step.guesses.back().count;
    entry.tokens.insert(entry.tokens.end(), entry.proposals.begin(), entry.proposals.begin() + count);
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
    const int64_t sampled = entry.sample ? 1 + step.guesses[i].count : 0;
    for (int64_t from = row - sampled; from < row; from++) step.wanted.push_back(from);
    step.histories.emplace_back();
    if (entry.sample && looksBack(*entry.sample)) {
      step.histories.back() = cache_.history(entry.sequence, entry.tokens.data(), entry.tokens.size());
    }
  }
  step.outcomes.resize(step.entries.size());
}

void Runner::compute(Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  float* logits = model_.run(step.batch, step.tokens, step.wanted);
  {
    const Timed timed(sampling_);
    size_t row = 0;
    for (size_t entry = 0; entry < step.entries.size(); entry++) collect(step, entry, logits, row);
  }
  step.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Reads this entry's rows of the logits, targets first, the sampled row last; `row` moves past them.
void Runner::collect(Step& step, size_t index, float* logits, size_t& row) {
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
  choose(step, index, logits + vocab * row);
  row += 1 + static_cast<size_t>(step.guesses[index].count);
}

// Samples row after row of one entry, as long as what comes out is what was proposed.
void Runner::choose(Step& step, size_t index, float* logits) {
  const StepEntry& entry = step.entries[index];
  StepOutcome& outcome = step.outcomes[index];
  const size_t vocab = static_cast<size_t>(options_.model.vocab);
  const std::vector<int32_t>& history = step.histories[index];
  const Mask mask{entry.mask.empty() ? nullptr : entry.mask.data(), static_cast<int32_t>(entry.mask.size())};
  const int32_t proposed = step.guesses[index].count;
  Sampling sampling = *entry.sample;
  for (int32_t i = 0; i <= proposed; i++, sampling.draw++) {
    float* values = logits + vocab * static_cast<size_t>(i);
    const int32_t unseen = history.empty() ? 0 : proposed - i;
    const History said{history.data(), static_cast<int32_t>(history.size()) - unseen, entry.generatedFrom};
    try {
      Choice choice;
      if (entry.top > 0) choice.top = sampler_.top(values, entry.top);
      choice.sampled = sampler_.sample(values, sampling, said, mask, entry.logprob);
      outcome.last = std::move(choice);
    } catch (const Error& failure) {
      // This entry's alone: the others of the batch have their tokens. Behind a proposal it is the next step's: the
      // row before has a token, which goes without its cell then and fails by itself.
      if (i == 0) outcome.failure = failure.what();
      else outcome.accepted.pop_back();
      break;
    }
    if (i == proposed || outcome.last.sampled.token != entry.proposals[static_cast<size_t>(i)]) break;
    outcome.accepted.push_back(outcome.last);
  }
  outcome.proposed = proposed;
}

void Runner::commit(const Step& step) noexcept {
  for (size_t i = 0; i < step.fills.size(); i++) {
    Fill fill = step.fills[i];
    const Guess& guess = step.guesses[i];
    const int32_t kept = static_cast<int32_t>(step.outcomes[i].accepted.size());
    fill.count -= guess.count - kept;
    cache_.commit(fill);
    if (guess.count > 0) cache_.retract(fill.sequence, guess, kept);
  }
  stepping_ = false;
  steps_++;
  tokensComputed_ += static_cast<int64_t>(step.tokens.size());
}

void Runner::abandon(const Step& step) noexcept {
  for (size_t i = 0; i < step.guesses.size(); i++) {
    if (step.guesses[i].count > 0) cache_.retract(step.entries[i].sequence, step.guesses[i], 0);
  }
  stepping_ = false;
}

RunnerStats Runner::stats() const { return {cache_.stats(), steps_, tokensComputed_}; }

const Parts& Runner::parts() const {
  requireIdle("parts");
  return model_.parts();
}

}  // namespace pocket
