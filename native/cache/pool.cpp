#include "cache/pool.h"

#include <algorithm>
#include <limits>

#include "error.h"

namespace pocket {

namespace {

int32_t requireSize(int32_t pages, int32_t pageSize) {
  const int64_t slots = static_cast<int64_t>(pages) * pageSize;
  if (pages <= 0 || pageSize <= 0 || slots > std::numeric_limits<int32_t>::max()) {
    throw error("BAD_ARGUMENT",
                "A pool of %d pages of %d tokens cannot be; both must be positive and the product fit 31 bits.", pages,
                pageSize);
  }
  return static_cast<int32_t>(slots);
}

}  // namespace

Pool::Pool(int32_t pages, int32_t pageSize)
    : pages_(pages), pageSize_(pageSize), pagesFree_(pages), written_(requireSize(pages, pageSize)) {
  cells_.resize(pages);
  allocations_.resize(pages);
}

// Lowest first: which page comes next depends on the pages that are free and not on how they became so, and
// neighbouring pages go to one splice, so its stretches are long.
int32_t Pool::allocate(int32_t cells) {
  if (pagesFree_ == 0) {
    throw error("CACHE_FULL", "The cache has 0 free pages of %d tokens; this request needs 1.", pageSize_);
  }
  while (cells_[lowest_] != 0) lowest_++;
  const int32_t page = lowest_++;
  cells_[page] = cells;
  allocations_[page] = ++allocated_;
  pagesFree_--;
  return page;
}

void Pool::removeCells(int32_t page, int32_t cells) noexcept {
  cells_[page] -= cells;
  if (cells_[page] != 0) return;
  allocations_[page] = 0;
  const auto first = written_.begin() + static_cast<int64_t>(page) * pageSize_;
  std::fill(first, first + pageSize_, uint8_t{0});
  lowest_ = std::min(lowest_, page);
  pagesFree_++;
}

}  // namespace pocket
