// How rows and cells are cut into jobs: counts of tiles and ranges, and that every row meets every cell that it sees
// exactly once, whatever the batch.
#include "attention/plan.h"

#include <algorithm>
#include <random>

#include "support/check.h"

using namespace pocket;

namespace {

constexpr AttentionShape kShape{14, 2, 64, 0.125f};
const KvShape kStore{1, 2, 64, 1 << 17, KvType::kF16};

AttentionPlan planner() { return {kShape, kStore, 32768}; }

// Cells [0, last row] in one stretch that begins at `slot`.
void add(Batch& batch, const std::vector<int>& rows, int slot) {
  BatchEntry entry;
  entry.firstRow = static_cast<int32_t>(batch.rows.size());
  entry.rowCount = static_cast<int32_t>(rows.size());
  entry.firstStretch = static_cast<int32_t>(batch.stretches.size());
  entry.stretchCount = 1;
  for (int row : rows) batch.rows.push_back({row, slot + row});
  batch.stretches.push_back({slot, rows.back() + 1, 0, 0});
  batch.entries.push_back(entry);
}

std::vector<int> range(int start, int end) {
  std::vector<int> rows;
  for (int i = start; i < end; i++) rows.push_back(i);
  return rows;
}

AttentionPlan planOf(const std::vector<int>& rows) {
  Batch batch;
  add(batch, rows, 0);
  AttentionPlan plan = planner();
  plan.make(batch);
  return plan;
}

}  // namespace

TEST("the last row of an edit far in front of it is a query tile of its own, in several ranges, and comes first") {
  std::vector<int> rows = range(64, 264);
  rows.push_back(12199);
  const AttentionPlan plan = planOf(rows);
  const QueryTile& first = plan.queryTiles[0];
  CHECK_EQ(first.firstRow, 200);
  CHECK_EQ(first.rowCount, 1);
  CHECK_EQ(first.segmentCount, 763);
  CHECK_EQ(first.ranges, 12);
  CHECK(first.batchInvariant);
  CHECK_EQ(plan.tasks[0].queryTile, 0);
  for (size_t i = 2; i < plan.queryTiles.size(); i++) {
    CHECK_EQ(plan.queryTiles[i].ranges, 1);
    CHECK(plan.queryTiles[i].segmentCount <= 17);
  }
}

TEST("rows near one another share a tile, whatever stands between them") {
  CHECK_EQ(planOf({100, 900, 1100}).queryTiles.size(), size_t{2});
  CHECK_EQ(planOf({8000, 8001, 15999}).queryTiles.size(), size_t{2});
  CHECK_EQ(planOf({8000, 8001, 16003}).queryTiles.size(), size_t{4});
}

TEST("a decode at depth is cut into sixteen ranges a head, and a shallow one into none") {
  CHECK_EQ(planOf({16383}).tasks.size(), size_t{32});
  CHECK_EQ(planOf({512}).tasks.size(), size_t{2});
}

TEST("cells read once more because tiles end early are no more than the last row sees") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; round++) {
    std::vector<int> rows;
    for (int index = static_cast<int>(random() % 3000); index < 32000; index += 1 + static_cast<int>(random() % 9000))
      rows.push_back(index);
    if (rows.size() > 18) continue;
    const AttentionPlan plan = planOf(rows);
    int64_t read = 0;
    for (const QueryTile& tile : plan.queryTiles) read += tile.kvHead == 0 ? tile.segmentCount : 0;
    CHECK(read <= 2 * ((rows.back() + 16) / 16) + 16);
  }
}

TEST("every row of a random batch meets every cell that it sees exactly once, for each head") {
  std::mt19937 random(6);
  for (int round = 0; round < 40; round++) {
    Batch batch;
    for (int e = 0, slot = 0; e < 3; e++) {
      std::vector<int> rows;
      int index = static_cast<int>(random() % 200);
      const int count = 1 + static_cast<int>(random() % 60);
      for (int i = 0; i < count; i++, index += 1 + (random() % 8 == 0 ? static_cast<int>(random() % 3000) : 0))
        if (index < 30000) rows.push_back(index);
      add(batch, rows, slot);
      slot += 40000;
    }
    AttentionPlan plan = planner();
    plan.make(batch);
    std::vector<int64_t> met(batch.rows.size() * 2);
    for (const Task& task : plan.tasks) {
      const QueryTile& tile = plan.queryTiles[static_cast<size_t>(task.queryTile)];
      const int from = task.range * tile.rangeSegments, end = std::min(from + tile.rangeSegments, tile.segmentCount);
      CHECK(from < end);
      for (int s = from; s < end; s++) {
        const Segment& segment = plan.segments[static_cast<size_t>(tile.firstSegment + s)];
        for (int r = 0; r < tile.rowCount; r++) {
          const int seen = batch.rows[static_cast<size_t>(tile.firstRow + r)].index + 1 - segment.index;
          met[static_cast<size_t>(tile.firstRow + r) * 2 + static_cast<size_t>(tile.kvHead)] +=
              std::clamp(seen, 0, segment.end - segment.begin);
        }
      }
    }
    for (size_t i = 0; i < met.size(); i++) CHECK_EQ(met[i], int64_t{batch.rows[i / 2].index} + 1);
  }
}
