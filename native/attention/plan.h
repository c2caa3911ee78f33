// How one call of the attention kernel is cut into jobs: which rows with which segments, in how many ranges. Numbers
// only; it reads no key and writes no result.
//
// How an entry is cut depends on that entry alone, not on the number of threads or on its neighbours in the batch,
// so a row's bits do not either. Rows far behind the others of their entry are computed apart from them. kDecodeRows rows
// at most, an entry of a decode step or such far rows, are cut where each of them alone would be: after every so many
// segments from the first cell on, wherever the last row stands.
#pragma once

#include <vector>

#include "attention/attention.h"
#include "attention/job.h"

namespace pocket {

// A query tile: some neighbouring rows of an entry and the query heads of one kv head. Its segments are cut into
// `ranges` jobs of equal size; the last is shorter. A range of which a row sees nothing adds exactly nothing to it.
struct QueryTile {
  int kvHead = 0;
  int firstRow = 0;  // of the batch
  int rowCount = 0;
  bool batchInvariant = false;  // as AttendJob has it
  int firstSegment = 0;
  int segmentCount = 0;
  int rangeSegments = 0;
  int ranges = 0;
  int64_t partial = 0;  // first float of its first range's partial; meaningless when there is one range
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

  int group;       // query heads of a kv head
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
  std::vector<QueryTile> tilesOfEntry_;  // of the entry at hand, still without kv head and ranges
};

}  // namespace pocket
