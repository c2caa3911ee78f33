// Allocates pages of pageSize neighbouring slots. Counts the cells of each page over all sequences (forks share pages)
// and records which slots have been written since the page was allocated. Knows no sequences and holds no keys or
// values. Not thread-safe; called by sequences, between steps.
#pragma once

#include <cstdint>
#include <vector>

namespace pocket {

class Pool {
 public:
  // Throws BAD_ARGUMENT unless both are positive and their product fits an int32 slot number.
  Pool(int32_t pages, int32_t pageSize);

  int32_t pages() const { return pages_; }
  int32_t pageSize() const { return pageSize_; }
  int32_t pagesFree() const { return pagesFree_; }
  int32_t pageOf(int32_t slot) const { return slot / pageSize_; }
  // Cells in `page`; it is free iff this is 0.
  int32_t cells(int32_t page) const { return cells_[page]; }
  // Number of the allocation that this page is used by, counted from 1; 0 while it is free. A changed number tells
  // that the page was free in between.
  int64_t allocation(int32_t page) const { return allocations_[page]; }
  bool written(int32_t slot) const { return written_[slot] != 0; }

  // The lowest free page, with `cells` (at least 1) in it. Throws CACHE_FULL when none is free.
  int32_t allocate(int32_t cells);
  // Adds or removes cells of a used page. Without cells it is free again and none of its slots counts as written.
  void addCells(int32_t page, int32_t cells) noexcept { cells_[page] += cells; }
  void removeCells(int32_t page, int32_t cells) noexcept;
  // The key and value of `slot` are in memory.
  void write(int32_t slot) noexcept { written_[slot] = 1; }

 private:
  int32_t pages_;
  int32_t pageSize_;
  int32_t pagesFree_;
  int32_t lowest_ = 0;  // no page below it is free
  int64_t allocated_ = 0;    // allocations so far
  std::vector<int32_t> cells_;
  std::vector<int64_t> allocations_;
  std::vector<uint8_t> written_;  // per slot
};

}  // namespace pocket
