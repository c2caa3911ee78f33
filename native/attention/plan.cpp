// Implements attention/plan.h: checks of the batch contract, and the split into query tiles and ranges.
#include "attention/plan.h"

#include <algorithm>

#include "error.h"

namespace pocket {
namespace {

constexpr int kRangeSegments = 64;  // minimum segments of a job
constexpr int kRanges = 16;         // target ranges of an entry, over all its query tiles
constexpr int kReadRows = 3;        // cost of reading a segment, in token-segment products

// Estimated cost, in products of a token with a segment.
int64_t costOf(const QueryTile& tile) { return int64_t{tile.segmentCount} * (tile.rowCount + kReadRows); }

// Whether to compute `row` separately from the row before it: the cells that only `row` sees are worth a job, and at
// least as many as the cells that both see, which are then read twice. Therefore the extra reads never exceed the reads
// without a split.
bool isFar(const Row& before, const Row& row) {
  return row.index - before.index >= std::max(before.index + 1, kRangeSegments * kTile);
}

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
  for (const BatchEntry& entry : batch.entries) {
    const int firstSegment = static_cast<int>(segments.size());
    cutStretches(batch, entry);
    cutRows(batch, entry, firstSegment);
  }
}

void AttentionPlan::check(const Batch& batch) const {
  const int rows = static_cast<int>(batch.rows.size()), stretches = static_cast<int>(batch.stretches.size());
  for (const Row& row : batch.rows)
    if (row.slot < 0 || row.slot >= store_.slots || row.index < 0 || row.index >= positions_)
      throw error("BAD_ARGUMENT", "row at index %d in slot %d: there are %d positions and %lld slots", row.index,
                  row.slot, positions_, static_cast<long long>(store_.slots));
  for (const BatchEntry& entry : batch.entries) {
    if (entry.rowCount < 1 || entry.firstRow < 0 || entry.rowCount > rows - entry.firstRow || entry.stretchCount < 1 ||
        entry.firstStretch < 0 || entry.stretchCount > stretches - entry.firstStretch)
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
      throw error("BAD_ARGUMENT",
                  "stretch of %d cells in slot %d at index %d, delta %d: expected index %lld, "
                  "there are %lld slots and %d positions",
                  s.count, s.slot, s.index, s.delta, static_cast<long long>(next), static_cast<long long>(store_.slots),
                  positions_);
    next = int64_t{s.index} + s.count;
  }
  if (next <= last)
    throw error("BAD_ARGUMENT", "stretches end at index %lld, the last row is at %d", static_cast<long long>(next),
                last);
}

// Segments of an entry: its stretches, split at tile ends and truncated after the last row.
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

// Query tiles of an entry. Tiles of the last rows see most cells and come first, so that no long job starts last.
void AttentionPlan::cutRows(const Batch& batch, const BatchEntry& entry, int firstSegment) {
  tilesOfEntry_.clear();
  const int end = entry.firstRow + entry.rowCount;
  for (int row = entry.firstRow, next = row + 1; row < end; row = next++) {
    while (next < end && !isFar(batch.rows[next - 1], batch.rows[next])) next++;
    cutRun(batch, row, next - row, firstSegment);
  }
  int64_t cost = 0;
  for (const QueryTile& tile : tilesOfEntry_) cost += costOf(tile);
  for (size_t i = tilesOfEntry_.size(); i-- > 0;) plan(tilesOfEntry_[i], cost);
}

// Splits consecutive rows into query tiles of nearly equal size.
void AttentionPlan::cutRun(const Batch& batch, int firstRow, int rowCount, int firstSegment) {
  const int tiles = (rowCount + tileTokens - 1) / tileTokens;
  const int tokens = (rowCount + tiles - 1) / tiles;  // no small last tile
  for (int row = 0; row < rowCount; row += tokens) {
    QueryTile tile;
    tile.firstRow = firstRow + row;
    tile.rowCount = std::min(tokens, rowCount - row);
    tile.batchInvariant = rowCount <= kDecodeRows;
    tile.firstSegment = firstSegment;
    const int last = batch.rows[tile.firstRow + tile.rowCount - 1].index;
    const auto end = std::upper_bound(segments.begin() + firstSegment, segments.end(), last,
                                      [](int index, const Segment& segment) { return index < segment.index; });
    tile.segmentCount = static_cast<int>(end - segments.begin()) - firstSegment;
    tilesOfEntry_.push_back(tile);
  }
}

// Appends one query tile per kv head. It gets a share of kRanges in proportion to its cost; decode rows get the ranges
// of a single row instead.
void AttentionPlan::plan(QueryTile tile, int64_t costOfEntry) {
  const int64_t share = (kRanges * costOf(tile) + costOfEntry / 2) / costOfEntry;
  const int maxRanges = (tile.segmentCount + kRangeSegments - 1) / kRangeSegments;
  const int ranges = static_cast<int>(std::clamp<int64_t>(share, 1, maxRanges));
  tile.rangeSegments = tile.batchInvariant ? kRangeSegments : (tile.segmentCount + ranges - 1) / ranges;
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
