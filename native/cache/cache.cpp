#include "cache/cache.h"

#include <algorithm>
#include <limits>

#include "error.h"

namespace pocket {

namespace {

constexpr int32_t kTileOfKernels = 16;

int32_t requirePageSize(int32_t pageSize) {
  if (pageSize <= 0 || pageSize % kTileOfKernels != 0) {
    throw error("BAD_ARGUMENT", "A page of %d tokens cannot be; the page size must be a positive multiple of %d.",
                pageSize, kTileOfKernels);
  }
  return pageSize;
}

}  // namespace

Cache::Cache(int32_t pages, int32_t pageSize, int32_t context)
    : context_(context), pool_(pages, requirePageSize(pageSize)) {
  if (context <= 0) throw error("BAD_ARGUMENT", "A context of %d tokens cannot be; it must be positive.", context);
}

int32_t Cache::create() {
  const int32_t id = freshId();
  sequences_.try_emplace(id, pool_, context_);
  return id;
}

void Cache::release(int32_t id) noexcept { sequences_.erase(id); }

int32_t Cache::fork(int32_t id, int32_t length) {
  const Sequence& from = at(id);
  const int32_t fork = freshId();
  sequences_.try_emplace(fork, from, length);
  return fork;
}

void Cache::splice(int32_t id, const std::vector<CellSplice>& splices) { at(id).splice(splices); }

void Cache::adopt(int32_t id, int32_t from, int32_t start, int32_t end) { at(id).adopt(at(from), start, end); }

Batch Cache::plan(const std::vector<Fill>& fills) const {
  std::vector<int32_t> ids;
  for (const Fill& fill : fills) {
    const int32_t gapTokens = at(fill.sequence).gapTokens();
    if (fill.count <= 0 || fill.count > gapTokens) {
      throw error("BAD_ARGUMENT", "A step would fill %d cells of sequence %d, which has %d gap cells.", fill.count,
                  fill.sequence, gapTokens);
    }
    ids.push_back(fill.sequence);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) {
    throw error("BAD_ARGUMENT", "Sequence %d occurs twice in one step; give it one entry with all its tokens.", *twice);
  }
  Batch batch;
  for (const Fill& fill : fills) at(fill.sequence).plan(fill.count, batch);
  return batch;
}

void Cache::commit(const Fill& fill) noexcept {
  const auto found = sequences_.find(fill.sequence);
  if (found != sequences_.end()) found->second.commit(fill.tokens, fill.count);
}

DraftCells Cache::openDraft(int32_t id, int32_t count) {
  const int32_t pagesFree = pool_.pagesFree();
  const DraftCells draft = at(id).openDraft(count);
  draftCells_ += draft.count;
  draftPages_ += pagesFree - pool_.pagesFree();
  return draft;
}

void Cache::rollbackDraft(int32_t id, const DraftCells& draft, int32_t kept) noexcept {
  // All drafts of a step end together, so what is left to take back at the first is not asked for before the last.
  draftCells_ = draftPages_ = 0;
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) found->second.rollbackDraft(draft, kept);
}

bool Cache::completes(int32_t id, int32_t count) const {
  const Sequence& sequence = at(id);
  return count > 0 && count == sequence.gapTokens() && !sequence.cells().back().filled;
}

std::vector<int32_t> Cache::history(int32_t id, const int32_t* tokens, size_t count) const {
  const Sequence& sequence = at(id);
  std::vector<int32_t> history = sequence.tokens();
  for (size_t i = sequence.filledHead(); count > 0 && i < history.size(); i++) {
    if (sequence.cells()[i].filled) continue;
    history[i] = *tokens++;
    count--;
  }
  return history;
}

int32_t Cache::open(int32_t count) {
  const int32_t id = create();
  try {
    splice(id, {{0, 0, count}});
  } catch (...) {
    release(id);
    throw;
  }
  return id;
}

void Cache::restore(int32_t id, const std::vector<int32_t>& tokens, const std::vector<int32_t>& births,
                    int32_t exactLength) noexcept {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) found->second.restore(tokens, births, exactLength);
}

SequenceInfo Cache::info(int32_t id) const {
  const Sequence& sequence = at(id);
  return {sequence.length(), sequence.gapTokens(), std::min(sequence.exactLength(), sequence.filledHead()),
          sequence.deltas()};
}

CacheStats Cache::stats() const {
  CacheStats stats;
  stats.pages = pool_.pages();
  stats.pagesFree = pool_.pagesFree() + draftPages_;
  stats.pagesUsed = stats.pages - stats.pagesFree;
  stats.sequences = static_cast<int32_t>(sequences_.size());
  for (const auto& [id, sequence] : sequences_) {
    stats.cells += sequence.length();
    stats.gapTokens += sequence.gapTokens();
  }
  stats.cells -= draftCells_;
  stats.gapTokens -= draftCells_;
  return stats;
}

Cells Cache::cells(int32_t id) const {
  const Sequence& sequence = at(id);
  Cells cells;
  for (const Cell& cell : sequence.cells()) {
    cells.slots.push_back(cell.slot);
    cells.births.push_back(cell.birth);
    cells.filled.push_back(cell.filled ? 1 : 0);
  }
  cells.tokens = sequence.tokens();
  return cells;
}

CacheSnapshot Cache::snapshot() const {
  CacheSnapshot snapshot;
  snapshot.pages = pool_.pages();
  snapshot.pageSize = pool_.pageSize();
  snapshot.context = context_;
  snapshot.pagesFree = pool_.pagesFree();
  for (int32_t page = 0; page < pool_.pages(); page++) {
    snapshot.pageCells.push_back(pool_.cells(page));
    snapshot.allocations.push_back(pool_.allocation(page));
  }
  const int32_t slots = pool_.pages() * pool_.pageSize();
  for (int32_t slot = 0; slot < slots; slot++) snapshot.written.push_back(pool_.written(slot) ? 1 : 0);
  for (const auto& [id, sequence] : sequences_) {
    snapshot.sequences.push_back({id, sequence.cells(), sequence.tokens(), sequence.openPage(), sequence.gapTokens(),
                                  sequence.filledHead(), sequence.exactLength()});
  }
  return snapshot;
}

const Sequence& Cache::at(int32_t id) const {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    throw error("BAD_ARGUMENT", "There is no sequence %d; it was released or never made.", id);
  }
  return found->second;
}

int32_t Cache::freshId() noexcept {
  do {
    lastId_ = lastId_ == std::numeric_limits<int32_t>::max() ? 1 : lastId_ + 1;
  } while (sequences_.count(lastId_) != 0);
  return lastId_;
}

}  // namespace pocket
