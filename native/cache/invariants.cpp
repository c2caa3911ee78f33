#include "cache/invariants.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

namespace pocket {

namespace {

constexpr size_t kSentences = 50;

class Check {
 public:
  explicit Check(const CacheSnapshot& snapshot)
      : snapshot_(snapshot),
        slots_(snapshot.pages * snapshot.pageSize),
        counted_(snapshot.pages),
        slotCells_(slots_),
        lastSeen_(slots_, -1) {}

  std::vector<std::string> run() {
    for (size_t i = 0; i < snapshot_.sequences.size(); i++) {
      const SequenceSnapshot& sequence = snapshot_.sequences[i];
      checkLengths(sequence);
      for (size_t index = 0; index < sequence.cells.size(); index++) {
        checkCell(sequence, static_cast<int32_t>(index), static_cast<int32_t>(i));
      }
      checkExact(sequence);
    }
    for (const SequenceSnapshot& sequence : snapshot_.sequences) {
      checkGapSlots(sequence);
      checkOpenPage(sequence);
    }
    checkPages();
    return std::move(sentences_);
  }

 private:
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...) {
    if (sentences_.size() >= kSentences) return;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sentences_.emplace_back(text);
  }

  void checkLengths(const SequenceSnapshot& s) {
    if (s.tokens.size() != s.cells.size()) {
      say("(1) sequence %d has %zu cells and %zu tokens.", s.id, s.cells.size(), s.tokens.size());
    }
    if (s.cells.size() > static_cast<size_t>(snapshot_.context)) {
      say("(1) sequence %d has %zu cells in a context of %d.", s.id, s.cells.size(), snapshot_.context);
    }
    int32_t gaps = 0, head = static_cast<int32_t>(s.cells.size());
    for (int32_t i = static_cast<int32_t>(s.cells.size()); i-- > 0;) {
      if (s.cells[i].filled) continue;
      gaps++;
      head = i;
    }
    if (s.gapTokens != gaps) say("(6) sequence %d counts %d gap cells and has %d.", s.id, s.gapTokens, gaps);
    if (s.filledHead != head) {
      say("(6) sequence %d puts its first gap at %d; it is at %d.", s.id, s.filledHead, head);
    }
  }

  void checkCell(const SequenceSnapshot& s, int32_t index, int32_t number) {
    const Cell& cell = s.cells[index];
    const bool born = cell.birth >= 0 && cell.birth < snapshot_.context;
    if (cell.filled != born) {
      say("(1) cell %d of sequence %d is %s and has birth %d.", index, s.id, cell.filled ? "filled" : "a gap",
          cell.birth);
    }
    if (cell.slot < 0 || cell.slot >= slots_) {
      say("(2) cell %d of sequence %d is in slot %d of %d.", index, s.id, cell.slot, slots_);
      return;
    }
    const int32_t page = cell.slot / snapshot_.pageSize;
    counted_[page]++;
    slotCells_[cell.slot]++;
    if (snapshot_.allocations[page] == 0) {
      say("(2) cell %d of sequence %d is in page %d, which is not allocated.", index, s.id, page);
    }
    if (cell.filled && snapshot_.written[cell.slot] == 0) {
      say("(2) cell %d of sequence %d is filled and its slot %d was never written.", index, s.id, cell.slot);
    }
    if (cell.adopted) return;
    if (lastSeen_[cell.slot] == number) {
      say("(4) slot %d occurs again at cell %d of sequence %d, not adopted.", cell.slot, index, s.id);
    }
    lastSeen_[cell.slot] = number;
  }

  // Necessary for (9), whose sufficient half is arithmetic: an exact cell is at its birth, and the cell
  // at the exact length is the first one that is not.
  void checkExact(const SequenceSnapshot& s) {
    const int32_t length = static_cast<int32_t>(s.cells.size());
    if (s.exactLength < 0 || s.exactLength > length) {
      say("(9) sequence %d of %d cells has exact length %d.", s.id, length, s.exactLength);
      return;
    }
    if (s.exactLength < length && !s.cells[s.exactLength].filled) {
      say("(9) the exact length %d of sequence %d points at a gap.", s.exactLength, s.id);
    }
    for (int32_t i = 0; i < s.exactLength; i++) {
      const Cell& cell = s.cells[i];
      if (cell.filled && cell.birth != i) {
        say("(9) cell %d of sequence %d was born at %d and counts as exact.", i, s.id, cell.birth);
      }
      if (cell.filled && i > s.filledHead) {
        say("(9) cell %d of sequence %d counts as exact and was filled before the gap at %d.", i, s.id, s.filledHead);
      }
    }
  }

  void checkGapSlots(const SequenceSnapshot& s) {
    for (size_t i = 0; i < s.cells.size(); i++) {
      const Cell& cell = s.cells[i];
      if (cell.filled || cell.slot < 0 || cell.slot >= slots_) continue;
      if (snapshot_.written[cell.slot] != 0) {
        say("(5) gap cell %zu of sequence %d would write slot %d again.", i, s.id, cell.slot);
      }
      if (slotCells_[cell.slot] != 1) {
        say("(5) gap cell %zu of sequence %d shares slot %d with %d others.", i, s.id, cell.slot,
            slotCells_[cell.slot] - 1);
      }
    }
  }

  void checkOpenPage(const SequenceSnapshot& s) {
    const OpenPage& open = s.open;
    if (open.allocation < 0) return;
    if (open.page < 0 || open.page >= snapshot_.pages || open.used < 0 || open.used > snapshot_.pageSize) {
      say("(5) sequence %d has open page %d with %d of %d slots used.", s.id, open.page, open.used, snapshot_.pageSize);
      return;
    }
    if (snapshot_.allocations[open.page] != open.allocation) return;  // returned meanwhile, so not open
    for (const SequenceSnapshot& other : snapshot_.sequences) {
      if (other.id > s.id && other.open.allocation == open.allocation) {
        say("(5) sequences %d and %d both write in page %d.", s.id, other.id, open.page);
      }
    }
    for (int32_t used = open.used; used < snapshot_.pageSize; used++) {
      const int32_t slot = open.page * snapshot_.pageSize + used;
      if (slotCells_[slot] != 0 || snapshot_.written[slot] != 0) {
        say("(5) slot %d lies behind the mark %d of the open page of sequence %d and is in use.", slot, open.used,
            s.id);
      }
    }
  }

  void checkPages() {
    int32_t free = 0;
    for (int32_t page = 0; page < snapshot_.pages; page++) {
      if (snapshot_.pageCells[page] != counted_[page]) {
        say("(3) page %d counts %d cells; it has %d.", page, snapshot_.pageCells[page], counted_[page]);
      }
      const bool isFree = snapshot_.allocations[page] == 0;
      if (isFree != (counted_[page] == 0)) {
        say("(3) page %d is %s and has %d cells.", page, isFree ? "free" : "used", counted_[page]);
      }
      free += isFree ? 1 : 0;
    }
    if (free != snapshot_.pagesFree) {
      say("(3) %d pages are free of %d; the pool says %d.", free, snapshot_.pages, snapshot_.pagesFree);
    }
  }

  const CacheSnapshot& snapshot_;
  const int32_t slots_;
  std::vector<int32_t> counted_;   // cells per page
  std::vector<int32_t> slotCells_;  // cells per slot
  std::vector<int32_t> lastSeen_;  // per slot, the last sequence that had it
  std::vector<std::string> sentences_;
};

}  // namespace

std::vector<std::string> violations(const CacheSnapshot& snapshot) { return Check(snapshot).run(); }

}  // namespace pocket
