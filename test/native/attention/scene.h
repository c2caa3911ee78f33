// A random paged sequence set for the attention tests: cells in scattered slots with births of their own, keys
// and values written by writeSlot, everything else in the store filled with bytes that read as not-a-number.
// The batch is derived from the cells the slow way, so that it owes nothing to the cache's code.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "attention/kernels.h"

namespace scene {

using namespace pocket;

struct Cell {
  int32_t slot;
  int32_t birth;
};

// One sequence: its cells in order of index, and the indices whose keys this step computes.
struct Sequence {
  std::vector<Cell> cells;
  std::vector<int> rows;
};

struct Size {
  int heads, kvHeads, headDim;
};

struct Plan {
  int cells = 100;      // of one sequence
  int rows = 1;
  bool scattered = false;  // rows anywhere, and not the last cells; the last cell is always one
  int longestRun = 40;  // cells that lie in neighbouring slots with one delta; 1 makes stretches of one token
  int from =
      -1;  // index of the first row; all but the last, which is the last cell, are behind one another; -1: no matter
};

class Scene {
 public:
  Scene(Size size, KvType type, const std::vector<Plan>& plans, unsigned seed, float queryScale = 1)
      : random(seed), rope(size.headDim, kContext, 1e6) {
    shape = {size.heads, size.kvHeads, size.headDim, 1.0f / std::sqrt(static_cast<float>(size.headDim))};
    int64_t slots = 64;
    for (const Plan& plan : plans) slots += int64_t{2} * plan.cells + 48;
    store = {2, size.kvHeads, size.headDim, (slots + 15) / 16 * 16, type};
    placeRuns(plans);
    packBatch();
    const size_t rows = batch.rows.size();
    q = normal(rows * size.heads * size.headDim, queryScale);
    k = normal(rows * size.kvHeads * size.headDim, 1);
    v = normal(rows * size.kvHeads * size.headDim, 1);
  }

  // A store with the survivors written, in layer 1, and nothing else: all its other bytes are 0xff.
  std::unique_ptr<KvStore> freshStore() const {
    auto made = std::make_unique<KvStore>(store);
    if (!pairScales.empty()) made->setPairScales(1, pairScales);
    std::memset(made->layer(0).keys, 0xff, made->bytes());
    std::mt19937 keysOfStore(7);
    std::normal_distribution<float> draw;
    std::vector<float> key(shape.headDim), value(shape.headDim);
    for (const Sequence& sequence : sequences)
      for (int i = 0; i < static_cast<int>(sequence.cells.size()); i++) {
        if (isRow(sequence, i)) continue;
        for (int h = 0; h < shape.kvHeads; h++) {
          for (float& x : key) x = draw(keysOfStore);
          for (float& x : value) x = draw(keysOfStore);
          for (int d = 0; d < shape.headDim; d++) key[d] *= reach(h, d);
          key[1] += outlier;
          rotate(key.data(), sequence.cells[i].birth);
          writeSlot(store, made->layer(1), h, sequence.cells[i].slot, key.data(), value.data());
        }
      }
    return made;
  }

  void rotate(float* x, int position) const {
    const int half = shape.headDim / 2;
    const float* turn = rope.row(position);
    for (int d = 0; d < half; d++) {
      const float a = x[d], b = x[half + d];
      x[d] = a * turn[d] - b * turn[half + d];
      x[half + d] = b * turn[d] + a * turn[half + d];
    }
  }

  std::vector<float> run(KvStore& into, const Kernel& kernel, int threads = 2) {
    std::vector<float> out(q.size(), NAN);
    const auto attention = kernel.own != nullptr ? makeAttention(shape, store, rope, kernel.own, threads)
                                                 : makeAttention(shape, store, rope, kernel.isa, threads);
    attention->run(batch, input(out), into.layer(1), threads == 1 ? inOrder() : twoThreads());
    return out;
  }

  std::vector<float> reference(const KvStore& from) {
    std::vector<float> out(q.size(), NAN);
    referenceAttention(shape, store, rope, batch, input(out), from.layer(1));
    return out;
  }

  AttentionInput input(std::vector<float>& out) { return {q.data(), k.data(), v.data(), out.data()}; }

  static ParallelFor inOrder() {
    return [](int count, const std::function<void(int)>& body) {
      for (int i = 0; i < count; i++) body(i);
    };
  }

  static ParallelFor twoThreads() {
    return [](int count, const std::function<void(int)>& body) {
      std::atomic<int> next{0};
      const auto work = [&] {
        for (int i = next++; i < count; i = next++) body(i);
      };
      std::thread other(work);
      work();
      other.join();
    };
  }

  static constexpr int kContext = 4096;

  float outlier = 0;  // added to one dimension of every survivor's key before it is rotated; set it before freshStore
  std::vector<float> pairScales;  // of layer 1, of stores made after it is set
  std::vector<float> reaches;  // as pair scales
  std::mt19937 random;
  Rope rope;
  AttentionShape shape;
  KvShape store;
  std::vector<Sequence> sequences;
  Batch batch;
  std::vector<float> q, k, v;

  // Gives each pair of the keys a reach of its own, some 2^-6 to 2^6, which is its scale too; queries as much smaller,
  // so that scores are what they were.
  void drawPairScales() {
    for (float exponent : normal(static_cast<size_t>(shape.kvHeads) * shape.headDim / 2, 2))
      reaches.push_back(std::exp2(exponent));
    pairScales = reaches;
    const int dim = shape.headDim, group = shape.heads / shape.kvHeads;
    for (size_t i = 0; i < k.size(); i++) k[i] *= reach(static_cast<int>(i / dim) % shape.kvHeads, i % dim);
    for (size_t i = 0; i < q.size(); i++) q[i] /= reach(static_cast<int>(i / dim) % shape.heads / group, i % dim);
  }

  // 1 unless it was drawn.
  float reach(int kvHead, size_t d) const {
    const size_t half = static_cast<size_t>(shape.headDim) / 2;
    return reaches.empty() ? 1.0f : reaches[kvHead * half + d % half];
  }

  // Neighbours in a batch are what they are because the batch says so: this makes it say something else.
  void packBatch() {
    batch = {};
    for (const Sequence& sequence : sequences) {
      BatchEntry entry;
      entry.firstRow = static_cast<int>(batch.rows.size());
      entry.rowCount = static_cast<int>(sequence.rows.size());
      entry.firstStretch = static_cast<int>(batch.stretches.size());
      for (int index : sequence.rows) batch.rows.push_back({index, sequence.cells[index].slot});
      for (int i = 0; i <= sequence.rows.back(); i++) {
        const Cell& cell = sequence.cells[i];
        Stretch* last = i > 0 ? &batch.stretches.back() : nullptr;
        if (last != nullptr && last->slot + last->count == cell.slot && last->delta == i - cell.birth) last->count++;
        else batch.stretches.push_back({cell.slot, 1, i, i - cell.birth});
      }
      entry.stretchCount = static_cast<int>(batch.stretches.size()) - entry.firstStretch;
      batch.entries.push_back(entry);
    }
  }

 private:
  static bool isRow(const Sequence& sequence, int index) {
    for (int row : sequence.rows)
      if (row == index) return true;
    return false;
  }

  int below(int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); }

  std::vector<float> normal(size_t count, float deviation) {
    std::normal_distribution<float> draw(0, deviation);
    std::vector<float> numbers(count);
    for (float& x : numbers) x = draw(random);
    return numbers;
  }

  // Cuts the sequences into runs, lays the runs of all of them out in random order with random holes between,
  // and gives each a birth of its own; rows are born where they stand.
  void placeRuns(const std::vector<Plan>& plans) {
    struct Run {
      int sequence, index, count;
    };
    std::vector<Run> runs;
    for (int s = 0; s < static_cast<int>(plans.size()); s++) {
      const Plan& plan = plans[s];
      Sequence sequence;
      sequence.cells.resize(plan.cells);
      std::vector<int> order(plan.cells - 1);
      for (int i = 0; i < plan.cells - 1; i++) order[i] = plan.scattered ? i : plan.cells - 2 - i;
      if (plan.scattered) std::shuffle(order.begin(), order.end(), random);
      if (plan.from >= 0) std::iota(order.begin(), order.end(), plan.from);
      sequence.rows.assign(order.begin(), order.begin() + (plan.rows - 1));
      sequence.rows.push_back(plan.cells - 1);
      std::sort(sequence.rows.begin(), sequence.rows.end());
      sequences.push_back(sequence);
      for (int i = 0, count; i < plan.cells; i += count) {
        count = std::min(plan.cells - i, 1 + below(plan.longestRun));
        runs.push_back({s, i, count});
      }
    }
    std::shuffle(runs.begin(), runs.end(), random);
    int total = 0;
    for (const Plan& plan : plans) total += plan.cells;
    int holes = static_cast<int>(store.slots) - total;
    int slot = 0;
    for (const Run& run : runs) {
      const int hole = std::min(holes, below(4) == 0 ? 1 + below(20) : 0);
      slot += hole, holes -= hole;
      const int birth = below(3) == 0 ? run.index : below(kContext - run.count);
      for (int i = 0; i < run.count; i++, slot++) {
        const bool row = isRow(sequences[run.sequence], run.index + i);
        sequences[run.sequence].cells[run.index + i] = {slot, row ? run.index + i : birth + i};
      }
    }
  }
};

}  // namespace scene
