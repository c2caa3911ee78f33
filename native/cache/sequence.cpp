#include "cache/sequence.h"

#include <algorithm>

#include "error.h"

namespace pocket {

namespace {

const Cell kGap;

[[noreturn]] void throwContext(int32_t context, int64_t length, const char* what) {
  throw error("CONTEXT_LENGTH_EXCEEDED",
              "This model's maximum context length is %d tokens. However, you requested %lld tokens (%s).", context,
              static_cast<long long>(length), what);
}

}  // namespace

// Calls visit(page, count) for each run of neighbouring cells of [start, end) in one page. One
// division per run.
template <class Visit>
void Sequence::visitPages(int32_t start, int32_t end, Visit visit) const {
  while (start < end) {
    const int32_t page = pool_.pageOf(cells_[start].slot);
    const int32_t slotStart = page * pool_.pageSize(), slotEnd = slotStart + pool_.pageSize();
    int32_t next = start + 1;
    while (next < end && cells_[next].slot >= slotStart && cells_[next].slot < slotEnd) next++;
    visit(page, next - start);
    start = next;
  }
}

Sequence::Sequence(const Sequence& from, int32_t length) : pool_(from.pool_), context_(from.context_) {
  from.requireFilled(0, length);
  cells_.assign(from.cells_.begin(), from.cells_.begin() + length);
  tokens_.assign(from.tokens_.begin(), from.tokens_.begin() + length);
  filledHead_ = length;
  exactLength_ = std::min(from.exactLength_, length);
  visitPages(0, length, [this](int32_t page, int32_t count) { pool_.addCells(page, count); });
}

Sequence::~Sequence() {
  visitPages(0, length(), [this](int32_t page, int32_t count) { pool_.removeCells(page, count); });
}

int32_t Sequence::deltas() const {
  std::vector<int32_t> distinct;
  for (int32_t i = 0; i < length(); i++) {
    if (!cells_[i].filled) continue;
    const int32_t delta = i - cells_[i].birth;
    if (!distinct.empty() && distinct.back() == delta) continue;
    const auto found = std::find(distinct.begin(), distinct.end(), delta);
    // The last delta found is at the back: cells of one delta are nearly always neighbours.
    if (found == distinct.end()) distinct.push_back(delta);
    else std::iter_swap(found, distinct.end() - 1);
  }
  return static_cast<int32_t>(distinct.size());
}

void Sequence::requireFilled(int32_t start, int32_t end) const {
  if (start < 0 || end < start || end > length()) {
    throw error("BAD_ARGUMENT", "Cells [%d, %d) do not lie inside the %d cells of the sequence.", start, end, length());
  }
  for (int32_t i = std::max(start, filledHead_); i < end; i++) {
    if (!cells_[i].filled) {
      throw error("BAD_ARGUMENT", "Cell %d of [%d, %d) is a gap; fill it with a step before it is shared.", i, start,
                  end);
    }
  }
}

// Grows by half at least, so that appending token by token costs no copy per token.
void Sequence::reserve(int64_t length) {
  if (static_cast<size_t>(length) <= std::min(cells_.capacity(), tokens_.capacity())) return;
  const int64_t capacity = std::max(length, std::min<int64_t>(context_, length + length / 2));
  cells_.reserve(static_cast<size_t>(capacity));
  tokens_.reserve(static_cast<size_t>(capacity));
}

// ---- splice: decide with everything that may throw, then do ----

void Sequence::splice(const std::vector<CellSplice>& splices) {
  const int64_t lengthNew = lengthAfter(length(), splices);
  if (lengthNew > context_) throwContext(context_, lengthNew, "the sequence after this edit");
  const std::vector<PageCells> cut = cutPages(splices);
  requirePages(splices, cut);
  const int32_t gapsNew = gapsAfter(splices);
  const int32_t exactNew = exactAfter(splices, static_cast<int32_t>(lengthNew));
  reserve(lengthNew);

  for (const PageCells& part : cut) pool_.removeCells(part.page, part.cells);
  applySplices(cells_, splices, kGap);
  applySplices(tokens_, splices, int32_t{-1});
  int32_t shift = 0;
  for (const CellSplice& splice : splices) {
    const int32_t startNew = splice.start + shift;
    takeSlots(startNew, startNew + splice.count);
    shift += splice.count - (splice.end - splice.start);
  }
  gapTokens_ = gapsNew;
  exactLength_ = exactNew;
  if (!splices.empty() && splices.front().start <= filledHead_) moveFilledHead(splices.front().start);
}

// The cells that the edit takes out of each page, by ascending page.
std::vector<Sequence::PageCells> Sequence::cutPages(const std::vector<CellSplice>& splices) const {
  std::vector<PageCells> cut;
  for (const CellSplice& splice : splices) {
    visitPages(splice.start, splice.end, [&cut](int32_t page, int32_t count) { cut.push_back({page, count}); });
  }
  std::sort(cut.begin(), cut.end(), [](const PageCells& a, const PageCells& b) { return a.page < b.page; });
  size_t merged = 0;
  for (size_t i = 1; i < cut.size(); i++) {
    if (cut[i].page == cut[merged].page) cut[merged].cells += cut[i].cells;
    else cut[++merged] = cut[i];
  }
  if (!cut.empty()) cut.resize(merged + 1);
  return cut;
}

// Pages that the edit's own cuts free count as available; so does what is left of the open page, unless it is
// among them.
void Sequence::requirePages(const std::vector<CellSplice>& splices, const std::vector<PageCells>& cut) const {
  const int32_t pageSize = pool_.pageSize();
  int64_t count = 0;
  for (const CellSplice& splice : splices) count += splice.count;
  int32_t left = openIsOurs() ? pageSize - open_.used : 0;
  int32_t pagesFree = pool_.pagesFree();
  for (const PageCells& part : cut) {
    if (part.cells != pool_.cells(part.page)) continue;
    pagesFree++;
    if (part.page == open_.page) left = 0;
  }
  const int64_t pages = count > left ? (count - left + pageSize - 1) / pageSize : 0;
  if (pages > pagesFree) {
    throw error("CACHE_FULL", "The cache has %d free pages of %d tokens; this request needs %lld.", pagesFree, pageSize,
                static_cast<long long>(pages));
  }
}

int32_t Sequence::gapsAfter(const std::vector<CellSplice>& splices) const {
  int32_t gaps = gapTokens_;
  for (const CellSplice& splice : splices) {
    gaps += splice.count;
    for (int32_t i = std::max(splice.start, filledHead_); i < splice.end; i++) gaps -= cells_[i].filled ? 0 : 1;
  }
  return gaps;
}

// Exact is what attends, or will attend, to exact cells only. An edit behind the exact length touches none of
// them. One that begins inside it leaves everything exact up to its first filled survivor, which attended to
// text that is gone or did not yet see what is new; gap cells in front of that one are yet to be computed.
//
//   [ exact ][ cut )[ gap ][ filled survivor …          exact up to the survivor
//   [ exact ][ cut )[ gap ][ cut )[ gap ] end           nothing survives behind: exact up to the end
int32_t Sequence::exactAfter(const std::vector<CellSplice>& splices, int32_t lengthNew) const {
  size_t i = 0;
  while (i < splices.size() && changesNothing(splices[i])) i++;
  if (i == splices.size() || splices[i].start > exactLength_) return exactLength_;
  int32_t shift = 0;
  for (; i < splices.size(); i++) {
    shift += splices[i].count - (splices[i].end - splices[i].start);
    const int32_t survivorsEnd = i + 1 < splices.size() ? splices[i + 1].start : length();
    for (int32_t survivor = splices[i].end; survivor < survivorsEnd; survivor++) {
      if (cells_[survivor].filled) return survivor + shift;
    }
  }
  return lengthNew;
}

// Gives slots to the new cells [start, end). The pages are there: requirePages has counted them.
void Sequence::takeSlots(int32_t start, int32_t end) {
  const int32_t pageSize = pool_.pageSize();
  while (start < end) {
    int32_t count = end - start;
    if (openIsOurs() && open_.used < pageSize) {
      count = std::min(count, pageSize - open_.used);
      pool_.addCells(open_.page, count);
    } else {
      count = std::min(count, pageSize);
      open_.page = pool_.allocate(count);
      open_.used = 0;
      open_.allocation = pool_.allocation(open_.page);
    }
    int32_t slot = open_.page * pageSize + open_.used;
    open_.used += count;
    for (const int32_t stop = start + count; start < stop; start++) cells_[start].slot = slot++;
  }
}

void Sequence::moveFilledHead(int32_t from) noexcept {
  filledHead_ = from;
  while (filledHead_ < length() && cells_[filledHead_].filled) filledHead_++;
}

// ---- openDraft, rollbackDraft: cells for a draft ----

DraftCells Sequence::openDraft(int32_t count) {
  const DraftCells none{0, open_};
  const int32_t left = openIsOurs() ? pool_.pageSize() - open_.used : 0;
  const int64_t slots = left + static_cast<int64_t>(pool_.pagesFree()) * pool_.pageSize();
  const int64_t fitting = std::min<int64_t>({count, slots, context_ - length()});
  if (fitting <= 0) return none;
  splice({{length(), length(), static_cast<int32_t>(fitting)}});
  return {static_cast<int32_t>(fitting), none.before};
}

void Sequence::rollbackDraft(const DraftCells& draft, int32_t kept) noexcept {
  const int32_t cut = draft.count - kept, lengthNew = length() - cut;
  if (cut == 0) return;
  visitPages(lengthNew, length(), [this](int32_t page, int32_t count) { pool_.removeCells(page, count); });
  cells_.resize(static_cast<size_t>(lengthNew));
  tokens_.resize(static_cast<size_t>(lengthNew));
  // Slots are allocated in order: the mark moves back behind the last cell that stays.
  if (kept == 0) {
    open_ = draft.before;
  } else {
    const int32_t slot = cells_.back().slot, page = pool_.pageOf(slot);
    open_ = {page, slot - page * pool_.pageSize() + 1, pool_.allocation(page)};
  }
  gapTokens_ -= cut;
  filledHead_ = std::min(filledHead_, lengthNew);
  exactLength_ = std::min(exactLength_, lengthNew);
}

// ---- adopt, plan, commit ----

void Sequence::adopt(const Sequence& from, int32_t start, int32_t end) {
  from.requireFilled(start, end);
  const int32_t lengthOld = length();
  const int64_t lengthNew = static_cast<int64_t>(lengthOld) + (end - start);
  if (lengthNew > context_) throwContext(context_, lengthNew, "the sequence with the adopted cells");
  reserve(lengthNew);

  // By index and not by iterator: `from` may be this sequence, whose vectors grow here.
  for (int32_t i = start; i < end; i++) {
    cells_.push_back(from.cells_[i]);
    cells_.back().adopted = true;
    tokens_.push_back(from.tokens_[i]);
  }
  visitPages(lengthOld, length(), [this](int32_t page, int32_t count) { pool_.addCells(page, count); });
  if (filledHead_ == lengthOld) filledHead_ = length();
}

void Sequence::plan(int32_t count, Batch& batch) const {
  BatchEntry entry;
  entry.firstRow = static_cast<int32_t>(batch.rows.size());
  entry.firstStretch = static_cast<int32_t>(batch.stretches.size());
  Stretch stretch;
  for (int32_t i = 0; count > 0; i++) {
    const Cell& cell = cells_[i];
    const int32_t delta = cell.filled ? i - cell.birth : 0;
    if (!cell.filled) {
      batch.rows.push_back({i, cell.slot});
      count--;
    }
    if (stretch.count > 0 && cell.slot == stretch.slot + stretch.count && delta == stretch.delta) {
      stretch.count++;
      continue;
    }
    if (stretch.count > 0) batch.stretches.push_back(stretch);
    stretch = {cell.slot, 1, i, delta};
  }
  batch.stretches.push_back(stretch);
  entry.rowCount = static_cast<int32_t>(batch.rows.size()) - entry.firstRow;
  entry.stretchCount = static_cast<int32_t>(batch.stretches.size()) - entry.firstStretch;
  batch.entries.push_back(entry);
}

void Sequence::commit(const int32_t* tokens, int32_t count) noexcept {
  for (int32_t i = filledHead_; count > 0 && i < length(); i++) {
    if (cells_[i].filled) continue;
    cells_[i].filled = true;
    cells_[i].birth = i;
    tokens_[i] = *tokens++;
    pool_.write(cells_[i].slot);
    gapTokens_--;
    count--;
  }
  moveFilledHead(filledHead_);
}

void Sequence::restore(const std::vector<int32_t>& tokens, const std::vector<int32_t>& births,
                       int32_t exactLength) noexcept {
  commit(tokens.data(), gapTokens_);
  for (int32_t i = 0; i < length(); i++) cells_[i].birth = births[i];
  exactLength_ = exactLength;
}

}  // namespace pocket
