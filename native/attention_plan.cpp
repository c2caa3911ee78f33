// The checks and the arithmetic of cutting; see attention_plan.h for what it is good for.
#include "attention_plan.h"

#include <algorithm>

#include "error.h"

namespace pocket {
namespace {

constexpr int kRangeSegments = 64;  // fewer are not worth a job of their own
constexpr int kMostRanges = 16;     // of the query tiles of an entry of many rows, together

}  // namespace

AttentionPlan::AttentionPlan(const AttentionShape& shape, const KvShape& store, int positions)
    : group(shape.heads / shape.kvHeads),
      tileTokens(std::max(1, kJobRows / group)),
      shape_(shape),
      store_(store),
      positions_(positions) {}

void AttentionPlan::make(const Batch& batch) {
  check(batch);
  segments.clear();
  queryTiles.clear();
  tasks.clear();
  partialFloats = 0;
  for (int e = 0; e < static_cast<int>(batch.entries.size()); e++) {
    const BatchEntry& entry = batch.entries[e];
    const int firstSegment = static_cast<int>(segments.size());
    cutStretches(batch, entry);
    const int tiles = (entry.rowCount + tileTokens - 1) / tileTokens;
    const int tokens = (entry.rowCount + tiles - 1) / tiles;  // no small last tile
    for (int row = 0; row < entry.rowCount; row += tokens)
      planTile(batch, e, row, std::min(tokens, entry.rowCount - row), firstSegment, tiles);
  }
}

void AttentionPlan::check(const Batch& batch) const {
  const int rows = static_cast<int>(batch.rows.size()), stretches = static_cast<int>(batch.stretches.size());
  for (const Row& row : batch.rows)
    if (row.slot < 0 || row.slot >= store_.slots || row.index < 0 || row.index >= positions_)
      throw error("BAD_ARGUMENT", "row at index %d in slot %d: there are %d positions and %lld slots", row.index,
                  row.slot, positions_, static_cast<long long>(store_.slots));
  for (const BatchEntry& entry : batch.entries) {
    if (entry.rowCount < 1 || entry.firstRow < 0 || entry.rowCount > rows - entry.firstRow ||
        entry.stretchCount < 1 || entry.firstStretch < 0 || entry.stretchCount > stretches - entry.firstStretch)
      throw error("BAD_ARGUMENT", "entry with rows %d + %d of %d and stretches %d + %d of %d", entry.firstRow,
                  entry.rowCount, rows, entry.firstStretch, entry.stretchCount, stretches);
    checkEntry(batch, entry);
  }
}

void AttentionPlan::checkEntry(const Batch& batch, const BatchEntry& entry) const {
  const Row* row = &batch.rows[entry.firstRow];
  for (int i = 1; i < entry.rowCount; i++)
    if (row[i].index <= row[i - 1].index)
      throw error("BAD_ARGUMENT", "row indices %d, %d do not ascend", row[i - 1].index, row[i].index);
  const int last = row[entry.rowCount - 1].index;
  int64_t next = 0;
  for (int i = 0; i < entry.stretchCount; i++) {
    const Stretch& s = batch.stretches[entry.firstStretch + i];
    const int64_t end = int64_t{s.slot} + s.count;
    if (s.count < 1 || s.slot < 0 || end > store_.slots || s.index != next || int64_t{s.index} - s.delta < 0 ||
        int64_t{last} - s.delta >= positions_)
      throw error("BAD_ARGUMENT", "stretch of %d cells in slot %d at index %d, delta %d: expected index %lld, "
                  "there are %lld slots and %d positions", s.count, s.slot, s.index, s.delta,
                  static_cast<long long>(next), static_cast<long long>(store_.slots), positions_);
    next = int64_t{s.index} + s.count;
  }
  if (next <= last)
    throw error("BAD_ARGUMENT", "stretches end at index %lld, the last row is at %d", static_cast<long long>(next),
                last);
}

// Segments of an entry: its stretches, cut where tiles end and behind the last row.
void AttentionPlan::cutStretches(const Batch& batch, const BatchEntry& entry) {
  const int last = batch.rows[entry.firstRow + entry.rowCount - 1].index;
  for (int i = 0; i < entry.stretchCount; i++) {
    const Stretch& s = batch.stretches[entry.firstStretch + i];
    const int count = std::min(s.count, last + 1 - s.index);
    for (int done = 0; done < count;) {
      const int lane = (s.slot + done) % kTile;
      const int taken = std::min(kTile - lane, count - done);
      segments.push_back({(s.slot + done) / kTile, lane, lane + taken, s.index + done, s.delta});
      done += taken;
    }
  }
}

// `row` and `rowCount` within the entry, which has `tiles` of them.
void AttentionPlan::planTile(const Batch& batch, int entry, int row, int rowCount, int firstSegment, int tiles) {
  QueryTile tile;
  tile.firstRow = batch.entries[entry].firstRow + row;
  tile.rowCount = rowCount;
  tile.firstSegment = firstSegment;
  const int last = batch.rows[tile.firstRow + tile.rowCount - 1].index;
  const auto end = std::upper_bound(segments.begin() + firstSegment, segments.end(), last,
                                    [](int index, const Segment& segment) { return index < segment.index; });
  tile.segmentCount = static_cast<int>(end - segments.begin()) - firstSegment;
  tile.asAlone = batch.entries[entry].rowCount <= kDecodeRows;
  const int wanted = (tile.segmentCount + kRangeSegments - 1) / kRangeSegments;
  const int ranges = std::min(wanted, std::max(1, kMostRanges / tiles));
  tile.rangeSegments = tile.asAlone ? kRangeSegments : (tile.segmentCount + ranges - 1) / ranges;
  tile.ranges = (tile.segmentCount + tile.rangeSegments - 1) / tile.rangeSegments;
  for (tile.kvHead = 0; tile.kvHead < shape_.kvHeads; tile.kvHead++) {
    const int index = static_cast<int>(queryTiles.size());
    if (tile.ranges > 1) {
      tile.partial = partialFloats;
      partialFloats += tile.ranges * floatsPerRange(tile);
    }
    queryTiles.push_back(tile);
    for (int range = 0; range < tile.ranges; range++) tasks.push_back({index, range});
  }
}

}  // namespace pocket
