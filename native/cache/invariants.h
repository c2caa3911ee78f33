// Checks the invariants of docs/design.md over all sequences at once, from a snapshot: what the pool counts is compared
// with what the cells say. It shares no code with cache/pool.cpp or cache/sequence.cpp, and a test can hand it a broken
// snapshot. (7) and (8) are about a call and not about a state: Sequence::splice refuses and tests prove it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/sequence.h"

namespace pocket {

struct SequenceSnapshot {
  int32_t id = 0;
  std::vector<Cell> cells;
  std::vector<int32_t> tokens;
  OpenPage open;
  int32_t gapTokens = 0;
  int32_t filledHead = 0;
  int32_t exactLength = 0;  // as Sequence::exactLength, gaps in front of it counted
};

struct CacheSnapshot {
  int32_t pages = 0;
  int32_t pageSize = 0;
  int32_t context = 0;
  int32_t pagesFree = 0;
  std::vector<int32_t> pageCells;  // per page, as the pool counts
  std::vector<int64_t> allocations;  // per page
  std::vector<uint8_t> written;  // per slot
  std::vector<SequenceSnapshot> sequences;
};

// One sentence with its numbers per violation, beginning with the invariant's number; empty when all hold.
// At most 50 sentences. Linear in cells and slots.
std::vector<std::string> violations(const CacheSnapshot& snapshot);

}  // namespace pocket
