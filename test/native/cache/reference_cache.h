// A dumber cache for the property test: sequences are plain vectors of cells, pages are counted by looking at
// every cell, and exactness is not a rule but a comparison: each filled cell carries a hash of everything it
// attended to, to be held against the hash that a cold prefill would give it. Slots of new cells are taken
// over from the cache under test; which pages they may come from is checked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "cache/cache.h"

// Whether two snapshots agree in every field.
inline bool same(const pocket::CacheSnapshot& a, const pocket::CacheSnapshot& b) {
  const auto sameCell = [](const pocket::Cell& x, const pocket::Cell& y) {
    return x.slot == y.slot && x.birth == y.birth && x.filled == y.filled && x.adopted == y.adopted;
  };
  const auto sameSequence = [&](const pocket::SequenceSnapshot& x, const pocket::SequenceSnapshot& y) {
    return x.id == y.id && x.tokens == y.tokens && x.gapTokens == y.gapTokens && x.filledHead == y.filledHead &&
           x.exactLength == y.exactLength && x.open.page == y.open.page && x.open.used == y.open.used &&
           x.open.allocation == y.open.allocation &&
           std::equal(x.cells.begin(), x.cells.end(), y.cells.begin(), y.cells.end(), sameCell);
  };
  return a.pagesFree == b.pagesFree && a.pageCells == b.pageCells && a.allocations == b.allocations &&
         a.written == b.written &&
         std::equal(a.sequences.begin(), a.sequences.end(), b.sequences.begin(), b.sequences.end(), sameSequence);
}

struct ModelCell {
  int32_t slot = -1;
  int32_t birth = -1;
  int32_t token = -1;
  bool filled = false;
  uint64_t hash = 0;  // of token, position and the hashes in front, when it was filled
};

inline uint64_t hashOf(uint64_t prefix, int32_t token, int32_t position) {
  uint64_t z = prefix ^ (static_cast<uint64_t>(token) << 32) ^ static_cast<uint64_t>(position);
  z = (z ^ (z >> 33)) * 0xff51afd7ed558ccdu;
  z = (z ^ (z >> 29)) * 0xc4ceb9fe1a85ec53u;
  return z ^ (z >> 32);
}

struct CacheModel {
  using ModelSequence = std::vector<ModelCell>;
  struct Open {
    int32_t page = -1;
    int32_t used = 0;
  };

  int32_t pages;
  int32_t pageSize;
  int32_t context;
  std::map<int32_t, ModelSequence> sequences;
  std::map<int32_t, Open> open;
  std::set<int32_t> written;  // slots

  std::vector<int32_t> pageCells() const {
    std::vector<int32_t> cells(pages);
    for (const auto& [id, sequence] : sequences) {
      for (const ModelCell& cell : sequence) {
        if (cell.slot >= 0) cells[cell.slot / pageSize]++;
      }
    }
    return cells;
  }

  int32_t pagesFree() const {
    int32_t free = 0;
    for (const int32_t cells : pageCells()) free += cells == 0 ? 1 : 0;
    return free;
  }

  // After cells were removed: an empty page is not the open page of any sequence, and none of its slots is written.
  void forgetEmptyPages() {
    const std::vector<int32_t> cells = pageCells();
    for (auto& [id, page] : open) {
      if (page.page >= 0 && cells[page.page] == 0) page = {};
    }
    for (auto slot = written.begin(); slot != written.end();) {
      slot = cells[*slot / pageSize] == 0 ? written.erase(slot) : std::next(slot);
    }
  }

  // Applies the cuts and opens gaps without slots.
  void cut(int32_t id, const std::vector<pocket::CellSplice>& splices) {
    ModelSequence& sequence = sequences[id];
    for (auto splice = splices.rbegin(); splice != splices.rend(); ++splice) {  // from the back: old coordinates
      sequence.erase(sequence.begin() + splice->start, sequence.begin() + splice->end);
      sequence.insert(sequence.begin() + splice->start, splice->count, ModelCell{});
    }
    forgetEmptyPages();
  }

  int64_t pagesNeeded(int32_t id) const {
    int64_t count = 0;
    for (const ModelCell& cell : sequences.at(id)) count += cell.slot < 0 ? 1 : 0;
    const auto found = open.find(id);
    const int32_t room = found == open.end() || found->second.page < 0 ? 0 : pageSize - found->second.used;
    return count <= room ? 0 : (count - room + pageSize - 1) / pageSize;
  }

  void fill(int32_t id, const std::vector<int32_t>& tokens) {
    size_t next = 0;
    uint64_t prefix = 0;
    ModelSequence& sequence = sequences[id];
    for (size_t i = 0; i < sequence.size() && next < tokens.size(); i++) {
      ModelCell& cell = sequence[i];
      if (!cell.filled) {
        cell = {cell.slot, static_cast<int32_t>(i), tokens[next++], true, 0};
        cell.hash = hashOf(prefix, cell.token, cell.birth);
      }
      prefix = hashOf(prefix ^ cell.hash, 0, 0);
    }
  }

  // Leading cells that are filled and have the hash of a cold prefill.
  int32_t coldLength(int32_t id) const {
    uint64_t prefix = 0;
    const ModelSequence& sequence = sequences.at(id);
    for (size_t i = 0; i < sequence.size(); i++) {
      const ModelCell& cell = sequence[i];
      const int32_t position = static_cast<int32_t>(i);
      if (!cell.filled || cell.hash != hashOf(prefix, cell.token, position)) return position;
      prefix = hashOf(prefix ^ cell.hash, 0, 0);
    }
    return static_cast<int32_t>(sequence.size());
  }
};
