// One ordered list of cells; a token's position is its index. Knows indices, births, slots and the exact
// length; knows no floats and no ids. An edit cuts and opens, survivors keep slot and birth:
//
//   index   0 1 2 │ 3 4 5 6 │ 7 8            splice [1, 3) -> 4 moved the cells at 3 … to 5 …
//   cell    S g g │ g g K K │ K K            S before the edit, g gap (a slot, no key), K survivor
//   slot    0 8 9 │ 10 11 3 4 │ 5 6
//   birth   0 - - │ - -   3 4 │ 5 6          delta = index - birth = 2 behind the gap
//
// New cells take the next slots of the sequence's open page, then fresh pages, the last of which becomes the
// open one. Only the sequence that allocated a page writes to it; forks and adopters only read. The
// draft tokens of a step are gap cells at the end (openDraft) that are removed where they were wrong (rollbackDraft).
// Called by Cache, between steps. The pool outlives it.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/batch.h"
#include "cache/pool.h"
#include "cache/splice.h"

namespace pocket {

struct Cell {
  int32_t slot = 0;
  int32_t birth = -1;  // position its key was rotated for; -1 while it is a gap
  bool filled = false;  // its key and value are written
  bool adopted = false;  // appended by adopt: only their slots may occur twice in a sequence
};

// The page that the next new cells go to. Slots at or behind `used` have not been given out since `allocation`, or
// were taken back unwritten.
struct OpenPage {
  int32_t page = 0;
  int32_t used = 0;
  int64_t allocation = -1;  // it is open only while the pool's number is the same
};

// Cells at the end of a sequence that a step computes before it is known whether they are right.
struct DraftCells {
  int32_t count = 0;
  OpenPage before;  // the open page without them
};

class Sequence {
 public:
  // Empty; may grow to `context` cells.
  Sequence(Pool& pool, int32_t context) : pool_(pool), context_(context) {}
  // A fork: the first `length` cells of `from`, pages shared, keys not copied, no open page. Throws
  // BAD_ARGUMENT unless 0 <= length and those cells are filled.
  Sequence(const Sequence& from, int32_t length);
  // Its cells leave their pages. The only way they all do.
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  int32_t length() const { return static_cast<int32_t>(cells_.size()); }
  int32_t gapTokens() const { return gapTokens_; }
  // Index of the first gap cell; length() without one.
  int32_t filledHead() const { return filledHead_; }
  // Index of the first filled cell that differs from a cold prefill, length() without one: the exact length
  // once the gaps in front of it are filled.
  int32_t exactLength() const { return exactLength_; }
  // Distinct differences index - birth of the filled cells.
  int32_t deltas() const;
  const std::vector<Cell>& cells() const { return cells_; }
  // As long as cells(); -1 for a gap cell.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const OpenPage& openPage() const { return open_; }

  // One edit. Throws BAD_ARGUMENT, CONTEXT_LENGTH_EXCEEDED or CACHE_FULL, and has then changed nothing.
  // Linear in the cells behind the first splice.
  void splice(const std::vector<CellSplice>& splices);

  // Opens gap cells behind the last one for a draft at what they will hold: `count`, or as many as context and free
  // pages allow. Until it is retracted nothing but commit may change this sequence.
  DraftCells openDraft(int32_t count);
  // Keeps the first `kept` cells of the draft and takes the others, all of them gaps, back: pages, open page and
  // exact length are as if they had never been opened.
  void rollbackDraft(const DraftCells& draft, int32_t kept) noexcept;

  // Appends the filled cells [start, end) of `from` (which may be this sequence) with their births. Throws
  // BAD_ARGUMENT or CONTEXT_LENGTH_EXCEEDED, and has then changed nothing.
  void adopt(const Sequence& from, int32_t start, int32_t end);

  // Appends to `batch` the rows and stretches that fill the first `count` gap cells, 1 <= count <= gapTokens().
  // Changes nothing here.
  void plan(int32_t count, Batch& batch) const;

  // The first `count` gap cells hold `tokens` from now on and were rotated for their index.
  void commit(const int32_t* tokens, int32_t count) noexcept;

  // Every cell, all of them gaps, holds a token and a birth from a file from now on; the first `exactLength` are
  // exact. The lists are as long as the sequence.
  void restore(const std::vector<int32_t>& tokens, const std::vector<int32_t>& births, int32_t exactLength) noexcept;

 private:
  struct PageCells {
    int32_t page;
    int32_t cells;
  };

  template <class Visit>
  void visitPages(int32_t start, int32_t end, Visit visit) const;
  void requireFilled(int32_t start, int32_t end) const;
  void reserve(int64_t length);
  std::vector<PageCells> cutPages(const std::vector<CellSplice>& splices) const;
  void requirePages(const std::vector<CellSplice>& splices, const std::vector<PageCells>& cut) const;
  int32_t gapsAfter(const std::vector<CellSplice>& splices) const;
  int32_t exactAfter(const std::vector<CellSplice>& splices, int32_t lengthNew) const;
  bool openIsOurs() const { return pool_.allocation(open_.page) == open_.allocation; }
  void takeSlots(int32_t start, int32_t end);
  void moveFilledHead(int32_t from) noexcept;

  Pool& pool_;
  int32_t context_;
  std::vector<Cell> cells_;
  std::vector<int32_t> tokens_;
  OpenPage open_;
  int32_t gapTokens_ = 0;
  int32_t filledHead_ = 0;
  int32_t exactLength_ = 0;
};

}  // namespace pocket
