// Thousands of random edits, forks, adoptions, fills and releases against CacheModel, with the invariants
// checked after every act. The readable cases are in sequence_test.cpp and cache_test.cpp.
#include <algorithm>
#include <random>

#include "cache/reference_cache.h"
#include "support/check.h"

using namespace pocket;

namespace {

using Ints = std::vector<int32_t>;

// Random operations on a cache and on its reference model. Each is applied to both, or refused by both.
class Life {
 public:
  Life(uint32_t seed, int32_t pages, int32_t context)
      : random_(seed), cache_(pages, 16, context), model_{pages, 16, context, {}, {}, {}} {}

  void act() {
    const int32_t choice = below(100);
    if (ids().empty() || choice < 6) create();
    else if (choice < 36) splice(anyId());
    else if (choice < 76) step();
    else if (choice < 84) fork(anyId());
    else if (choice < 91) adopt(anyId(), anyId());
    else if (choice < 94) refuse(anyId());
    else if (choice < 97) draft(anyId());
    else if (ids().size() > 1) release(anyId());
    compare();
  }

  void releaseAll() {
    while (!ids().empty()) release(ids().front());
    compare();
  }

  int refusedFull = 0, refusedContext = 0, guessesKept = 0, exactSum = 0, coldSum = 0;

 private:
  int32_t below(int32_t bound) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(bound)); }
  Ints ids() const {
    Ints all;
    for (const auto& [id, sequence] : model_.sequences) all.push_back(id);
    return all;
  }
  int32_t anyId() { return ids()[below(static_cast<int32_t>(ids().size()))]; }
  int32_t lengthOf(int32_t id) const { return static_cast<int32_t>(model_.sequences.at(id).size()); }

  void create() { model_.sequences[cache_.create()] = {}; }

  void release(int32_t id) {
    cache_.release(id);
    cache_.release(id);
    model_.sequences.erase(id);
    model_.open.erase(id);
    model_.forgetEmptyPages();
  }

  std::vector<CellSplice> anySplices(int32_t length) {
    std::vector<CellSplice> splices;
    const int32_t wanted = 1 + below(3);
    int32_t from = 0;
    for (int32_t i = 0; i < wanted && from <= length; i++) {
      // A third are appends, which is what most of life is.
      const int32_t start = below(3) == 0 ? length : from + below(length - from + 1);
      const int32_t end = start + below(std::min(length - start, 40) + 1);
      splices.push_back({start, end, below(4) == 0 ? 0 : below(below(6) == 0 ? 70 : 12)});
      from = end;
    }
    return splices;
  }

  // The act that throws `code` has changed nothing.
  template <class Act>
  void refused(const char* code, Act act) {
    const CacheSnapshot before = cache_.snapshot();
    CHECK_THROWS_CODE(act(), code);
    CHECK(same(before, cache_.snapshot()));
  }

  void splice(int32_t id) {
    const std::vector<CellSplice> splices = anySplices(lengthOf(id));
    CacheModel after = model_;
    after.cut(id, splices);
    if (static_cast<int32_t>(after.sequences[id].size()) > model_.context) {
      refusedContext++;
      return refused("CONTEXT_LENGTH_EXCEEDED", [&] { cache_.splice(id, splices); });
    }
    if (after.pagesNeeded(id) > after.pagesFree()) {
      refusedFull++;
      return refused("CACHE_FULL", [&] { cache_.splice(id, splices); });
    }
    const int32_t freeAfter = after.pagesFree() - static_cast<int32_t>(after.pagesNeeded(id));
    cache_.splice(id, splices);
    takeOver(after, id);
    model_ = after;
    CHECK_EQ(cache_.stats().pagesFree, freeAfter);
  }

  // New cells may stand in the rest of the open page, then in pages that were free, from their first slot on.
  void takeOver(CacheModel& after, int32_t id) {
    const Ints slots = cache_.cells(id).slots;
    CacheModel::Open& open = after.open[id];
    const std::vector<int32_t> pageCells = after.pageCells();
    std::vector<ModelCell>& sequence = after.sequences[id];
    for (size_t i = 0; i < sequence.size(); i++) {
      if (sequence[i].slot >= 0) continue;
      const int32_t slot = slots[i], page = slot / 16;
      if (open.page < 0 || open.used == 16) {
        CHECK_EQ(pageCells[page], 0);
        open = {page, 0};
      }
      CHECK_EQ(slot, open.page * 16 + open.used);
      open.used++;
      sequence[i].slot = slot;
    }
  }

  void fork(int32_t id) {
    const std::vector<ModelCell>& from = model_.sequences[id];
    const int32_t length = below(lengthOf(id) + 1);
    const bool filled = std::all_of(from.begin(), from.begin() + length, [](const ModelCell& c) { return c.filled; });
    if (!filled) return refused("BAD_ARGUMENT", [&] { cache_.fork(id, length); });
    model_.sequences[cache_.fork(id, length)] = {from.begin(), from.begin() + length};
  }

  void adopt(int32_t id, int32_t fromId) {
    const std::vector<ModelCell> from = model_.sequences[fromId];
    const int32_t start = below(lengthOf(fromId) + 1), end = start + below(std::min(lengthOf(fromId) - start, 20) + 1);
    const auto first = from.begin() + start, last = from.begin() + end;
    if (!std::all_of(first, last, [](const ModelCell& c) { return c.filled; })) {
      return refused("BAD_ARGUMENT", [&] { cache_.adopt(id, fromId, start, end); });
    }
    if (lengthOf(id) + (end - start) > model_.context) {
      return refused("CONTEXT_LENGTH_EXCEEDED", [&] { cache_.adopt(id, fromId, start, end); });
    }
    cache_.adopt(id, fromId, start, end);
    model_.sequences[id].insert(model_.sequences[id].end(), first, last);
  }

  void refuse(int32_t id) {
    const int32_t length = lengthOf(id);
    refused("BAD_ARGUMENT", [&] { cache_.splice(id, {{0, length + 1, 0}}); });
    refused("BAD_ARGUMENT", [&] { cache_.splice(id, {{length, length, 1}, {length - 1, length, 1}}); });
    refused("BAD_ARGUMENT", [&] { cache_.fork(id, length + 1); });
    refused("BAD_ARGUMENT", [&] { cache_.adopt(id, id, 0, length + 1); });
    refused("BAD_ARGUMENT", [&] { cache_.splice(1 << 30, {}); });
  }

  // One step: some sequences with gaps get some of them filled.
  void step() {
    std::vector<Fill> fills;
    std::map<int32_t, Ints> tokens;
    for (const int32_t id : ids()) {
      const int32_t gaps = cache_.info(id).gapTokens;
      if (gaps == 0 || below(3) == 0) continue;
      Ints& own = tokens[id];
      // Few different tokens, so that equal text at equal places does occur.
      for (int32_t i = below(3) == 0 ? below(gaps) : 0; i < gaps; i++) own.push_back(below(3));
      fills.push_back({id, own.data(), static_cast<int32_t>(own.size())});
    }
    const CacheSnapshot before = cache_.snapshot();
    const Batch batch = cache_.plan(fills);
    CHECK(same(before, cache_.snapshot()));
    CHECK_EQ(batch.entries.size(), fills.size());
    for (size_t i = 0; i < fills.size(); i++) comparePlan(batch, i, fills[i]);
    std::map<int32_t, Ints> histories;
    for (const Fill& fill : fills) histories[fill.sequence] = cache_.history(fill.sequence, fill.tokens, fill.count);
    for (const Fill& fill : fills) cache_.commit(fill);
    for (const Fill& fill : fills) {
      model_.fill(fill.sequence, tokens[fill.sequence]);
      CHECK_EQ(histories[fill.sequence], cache_.cells(fill.sequence).tokens);
    }
  }

  // Cells for draft tokens, of which some turn out right: to the model only those were ever opened.
  void draft(int32_t id) {
    const CacheSnapshot before = cache_.snapshot();
    const CacheStats stats = cache_.stats();
    const int32_t length = lengthOf(id), wanted = 1 + below(40);
    const auto open = model_.open.find(id);
    const int32_t room = open == model_.open.end() || open->second.page < 0 ? 0 : 16 - open->second.used;
    const DraftCells draft = cache_.openDraft(id, wanted);
    CHECK_EQ(draft.count, std::min({wanted, room + 16 * model_.pagesFree(), model_.context - length}));
    CHECK_EQ(cache_.stats().pagesFree, stats.pagesFree);
    CHECK_EQ(cache_.stats().cells, stats.cells);
    CHECK_EQ(cache_.stats().gapTokens, stats.gapTokens);
    for (const std::string& sentence : cache_.violations()) check::fail(__FILE__, __LINE__, sentence);
    const int32_t kept = stats.gapTokens > 0 || draft.count == 0 ? 0 : below(draft.count + 1);
    const Ints tokens(static_cast<size_t>(draft.count), 1);
    if (kept > 0) {
      cache_.plan({{id, tokens.data(), draft.count}});
      cache_.commit({id, tokens.data(), kept});
    }
    cache_.rollbackDraft(id, draft, kept);
    if (kept == 0) {
      CHECK(same(before, cache_.snapshot()));
      return;
    }
    guessesKept++;
    CacheModel after = model_;
    after.cut(id, {{length, length, kept}});
    takeOver(after, id);
    for (int32_t i = length; i < length + kept; i++) CHECK(after.written.insert(after.sequences[id][i].slot).second);
    after.fill(id, Ints(static_cast<size_t>(kept), 1));
    model_ = after;
  }

  // Rows are the first gap cells; stretches spell out every cell up to the last row; no two could be one.
  void comparePlan(const Batch& batch, size_t number, const Fill& fill) {
    const BatchEntry& entry = batch.entries[number];
    const std::vector<ModelCell>& sequence = model_.sequences[fill.sequence];
    CHECK_EQ(entry.rowCount, fill.count);
    int32_t row = entry.firstRow, index = 0;
    Stretch previous;
    for (int32_t s = 0; s < entry.stretchCount; s++) {
      const Stretch& stretch = batch.stretches[entry.firstStretch + s];
      CHECK_EQ(stretch.index, index);
      CHECK(stretch.count > 0);
      if (s > 0) CHECK(stretch.slot != previous.slot + previous.count || stretch.delta != previous.delta);
      previous = stretch;
      for (int32_t i = 0; i < stretch.count; i++, index++) {
        const ModelCell& cell = sequence[index];
        CHECK_EQ(stretch.slot + i, cell.slot);
        CHECK_EQ(stretch.delta, cell.filled ? index - cell.birth : 0);
        if (cell.filled) continue;
        CHECK_EQ(batch.rows[row].index, index);
        CHECK_EQ(batch.rows[row].slot, cell.slot);
        CHECK(model_.written.insert(cell.slot).second);  // (5)
        row++;
      }
    }
    CHECK_EQ(row, entry.firstRow + entry.rowCount);
    CHECK_EQ(index, batch.rows[row - 1].index + 1);
    const bool completes = index == static_cast<int32_t>(sequence.size());
    CHECK_EQ(cache_.completes(fill.sequence, fill.count), completes);
  }

  void compare() {
    for (const std::string& sentence : cache_.violations()) check::fail(__FILE__, __LINE__, sentence);
    const CacheStats stats = cache_.stats();
    CHECK_EQ(stats.pagesFree, model_.pagesFree());
    CHECK_EQ(stats.pagesFree + stats.pagesUsed, model_.pages);
    CHECK_EQ(stats.sequences, model_.sequences.size());
    int64_t cells = 0, gaps = 0;
    for (const auto& [id, sequence] : model_.sequences) {
      cells += static_cast<int64_t>(sequence.size());
      gaps += compareCells(id, sequence);
    }
    CHECK_EQ(stats.cells, cells);
    CHECK_EQ(stats.gapTokens, gaps);
  }

  int32_t compareCells(int32_t id, const std::vector<ModelCell>& sequence) {
    const Cells cells = cache_.cells(id);
    const SequenceInfo info = cache_.info(id);
    std::set<int32_t> deltas;
    int32_t gaps = 0;
    CHECK_EQ(info.length, sequence.size());
    CHECK_EQ(cells.slots.size(), sequence.size());
    for (size_t i = 0; i < sequence.size(); i++) {
      CHECK_EQ(cells.slots[i], sequence[i].slot);
      CHECK_EQ(cells.births[i], sequence[i].birth);
      CHECK_EQ(cells.tokens[i], sequence[i].token);
      CHECK_EQ(cells.filled[i] != 0, sequence[i].filled);
      if (sequence[i].filled) deltas.insert(static_cast<int32_t>(i) - sequence[i].birth);
      else gaps++;
    }
    CHECK_EQ(info.gapTokens, gaps);
    CHECK_EQ(info.deltas, deltas.size());
    CHECK(info.exactLength <= model_.coldLength(id));  // (9)
    exactSum += info.exactLength;
    coldSum += model_.coldLength(id);
    return gaps;
  }

  std::mt19937 random_;
  Cache cache_;
  CacheModel model_;
};

}  // namespace

TEST("(1)-(9) random edits, forks, adoptions, fills and releases agree with a plain vector model") {
  int refusedFull = 0, refusedContext = 0, guessesKept = 0;
  int64_t exact = 0, cold = 0;
  for (uint32_t seed = 0; seed < 100; seed++) {
    Life life(seed, 4 + static_cast<int32_t>(seed % 9), 110);
    for (int i = 0; i < 200; i++) life.act();
    life.releaseAll();
    refusedFull += life.refusedFull;
    refusedContext += life.refusedContext;
    guessesKept += life.guessesKept;
    exact += life.exactSum;
    cold += life.coldSum;
  }
  // The walk has been where it matters, and the exact length is not short for caution's sake.
  CHECK(refusedFull > 1000);
  CHECK(refusedContext > 50);
  CHECK(guessesKept > 50);
  CHECK(exact > cold * 95 / 100);
}
