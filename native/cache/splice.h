// The arithmetic of one edit, apart from pages and keys. An edit is a list of splices in *old* coordinates,
// ascending and disjoint. All ranges are [start, end). Changes nothing but the vector it is given.
//
//   old   0 … a [ cut ) b …… c [ cut ) d … length        survivors keep their order and their contents
//   new   0 … a [ gap ) … b' … [ gap ) … d' …            and are shifted by the gaps in front
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "error.h"

namespace pocket {

// Cut [start, end), open a gap of `count` cells there. start = end inserts only; count = 0 cuts only.
struct CellSplice {
  int32_t start = 0;
  int32_t end = 0;
  int32_t count = 0;
};

inline bool changesNothing(const CellSplice& splice) { return splice.start == splice.end && splice.count == 0; }

// The length after the edit. Throws BAD_ARGUMENT for splices that leave the sequence, overlap or run
// backwards.
inline int64_t lengthAfter(int32_t length, const std::vector<CellSplice>& splices) {
  int64_t lengthNew = length;
  int32_t from = 0;
  for (const CellSplice& splice : splices) {
    if (splice.start < from || splice.end < splice.start || splice.end > length || splice.count < 0) {
      throw error("BAD_ARGUMENT",
                  "Splice [%d, %d) -> %d does not fit: splices must ascend without overlap (the one before ends at "
                  "%d), lie inside the %d cells and open no negative gap.",
                  splice.start, splice.end, splice.count, from, length);
    }
    lengthNew += splice.count - (splice.end - splice.start);
    from = splice.end;
  }
  return lengthNew;
}

// Cuts front to back, so that survivors only move left, then opens gaps back to front, so that they only move
// right: each value is moved at most twice, whatever the number of splices. Gap values are `gap`. Does not
// throw when `values` has the capacity for the new length. The splices are valid for its length.
template <class T>
void applySplices(std::vector<T>& values, const std::vector<CellSplice>& splices, const T& gap) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (splices.empty()) return;
  const int32_t length = static_cast<int32_t>(values.size());
  int32_t kept = splices.front().start;  // [0, kept) is packed
  int64_t lengthNew = kept;
  for (size_t i = 0; i < splices.size(); i++) {
    const int32_t start = splices[i].end;  // survivors behind this splice: [start, end)
    const int32_t end = i + 1 < splices.size() ? splices[i + 1].start : length;
    if (kept != start) std::memmove(values.data() + kept, values.data() + start, sizeof(T) * (end - start));
    kept += end - start;
    lengthNew += splices[i].count + (end - start);
  }
  values.resize(static_cast<size_t>(lengthNew), gap);
  int32_t to = static_cast<int32_t>(lengthNew);  // [to, lengthNew) is in its final place
  for (size_t i = splices.size(); i-- > 0;) {
    const int32_t survivors = (i + 1 < splices.size() ? splices[i + 1].start : length) - splices[i].end;
    kept -= survivors;
    to -= survivors;
    if (kept != to) std::memmove(values.data() + to, values.data() + kept, sizeof(T) * survivors);
    to -= splices[i].count;
    std::fill_n(values.data() + to, splices[i].count, gap);
  }
}

}  // namespace pocket
