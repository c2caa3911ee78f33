// Lends pages: pageSize neighbouring slots each. Counts, per page, the cells that stand in it over all
// sequences (forks share pages), and remembers which slots have been written since the page was lent. It
// does not know who stands where, and holds no keys or values. Not thread-safe; called by sequences, between
// steps.
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
  // Cells standing in `page`; it is free iff this is 0.
  int32_t cells(int32_t page) const { return cells_[page]; }
  // Which allocation of the pool this page is out on, counted from 1; 0 while it is free. Who remembers the
  // number can tell whether the page has been returned meanwhile.
  int64_t allocation(int32_t page) const { return allocations_[page]; }
  bool written(int32_t slot) const { return written_[slot] != 0; }

  // The lowest free page, with `cells` (at least 1) standing in it. Throws CACHE_FULL when none is free.
  int32_t allocate(int32_t cells);
  // `cells` more, or fewer, stand in a lent page. With the last one it is free again and nothing is written.
  void addCells(int32_t page, int32_t cells) noexcept { cells_[page] += cells; }
  void removeCells(int32_t page, int32_t cells) noexcept;
  // The key and value of `slot` lie in memory from now on.
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
