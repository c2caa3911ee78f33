// Splits one attention call into jobs: which rows against which segments, in how many ranges. Reads no key and writes
// no result.
//
// The split of an entry depends on that entry alone, not on the number of threads or on the other entries of the batch;
// therefore the bits of a row do not either. Rows far behind the other rows of their entry are computed separately.
// Entries of at most kDecodeRows rows (decode steps, and such far rows) are split every kRangeSegments segments from
// the first cell on, as each row alone would be.
#pragma once

#include <vector>

#include "attention/attention.h"
#include "attention/job.h"

namespace pocket {

// A query tile: consecutive rows of an entry and the query heads of one kv head. Its segments are split into `ranges`
// jobs of equal size; the last may be shorter. A range that a row does not see adds exactly zero to that row.
struct QueryTile {
  int kvHead = 0;
  int firstRow = 0;  // of the batch
  int rowCount = 0;
  bool batchInvariant = false;  // as AttendJob has it
  int firstSegment = 0;
  int segmentCount = 0;
  int rangeSegments = 0;
  int ranges = 0;
  int64_t partial = 0;  // offset of the partial result of its first range; unused if ranges == 1
};

struct Task {
  int queryTile = 0;
  int range = 0;
};

class AttentionPlan {
 public:
  // `positions` is the number of rows of the rope table.
  AttentionPlan(const AttentionShape& shape, const KvShape& store, int positions);

  // Replaces the plan; keeps the memory. Throws BAD_ARGUMENT for a batch that breaks the contract in cache/batch.h.
  void make(const Batch& batch);

  int64_t floatsPerRange(const QueryTile& tile) const {
    return pocket::partialFloats(int64_t{tile.rowCount} * group, shape_.headDim);
  }

  int group;  // query heads of a kv head
  int tileTokens;  // tokens of a query tile at most

  std::vector<Segment> segments;
  std::vector<QueryTile> queryTiles;
  std::vector<Task> tasks;
  int64_t partialFloats = 0;  // of all ranges of query tiles that have more than one

 private:
  void check(const Batch& batch) const;
  void checkEntry(const Batch& batch, const BatchEntry& entry) const;
  void cutStretches(const Batch& batch, const BatchEntry& entry);
  void cutRows(const Batch& batch, const BatchEntry& entry, int firstSegment);
  void cutRun(const Batch& batch, int firstRow, int rowCount, int firstSegment);
  void plan(QueryTile tile, int64_t costOfEntry);

  AttentionShape shape_;
  KvShape store_;
  int positions_;
  std::vector<QueryTile> tilesOfEntry_;  // of the current entry, before kvHead and ranges are set
};

}  // namespace pocket
