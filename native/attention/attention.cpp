// Runs attention over a batch: writes the new keys and values, distributes the jobs of the plan to threads, and merges
// the partial results of a row. Selects the kernel for an instruction set. Does no arithmetic of a job; that is
// attention/kernels/kernel.h.
#include "attention/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <thread>

#include "attention/job.h"
#include "attention/plan.h"
#include "error.h"

namespace pocket {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kWriteRows = 16;      // rows per job of the pass that writes keys and values

// Scratch memory for `count` concurrent jobs. A job that finds no free buffer waits. Jobs must not throw: a worker
// thread cannot catch.
class ScratchPool {
 public:
  ScratchPool(int count, int64_t floats) : stride_((floats + 15) / 16 * 16), taken_(count) {
    memory_.reset(static_cast<float*>(::operator new(sizeof(float) * stride_ * count, std::align_val_t{64})));
  }

  // Calls use(pointer) with a buffer that no other call uses at the same time.
  template <class Use>
  void with(Use use) {
    for (size_t i = 0;; i = (i + 1) % taken_.size()) {
      if (!taken_[i].flag.test_and_set(std::memory_order_acquire)) {
        use(memory_.get() + stride_ * i);
        taken_[i].flag.clear(std::memory_order_release);
        return;
      }
      if (i + 1 == taken_.size()) std::this_thread::yield();
    }
  }

 private:
  struct Aligned {
    void operator()(float* memory) const { ::operator delete(memory, std::align_val_t{64}); }
  };
  struct Flag {
    std::atomic_flag flag = ATOMIC_FLAG_INIT;
  };
  int64_t stride_;
  std::unique_ptr<float, Aligned> memory_;
  std::vector<Flag> taken_;
};

// Counts the finished ranges of each query tile.
class Ended {
 public:
  void reset(size_t tiles) {
    if (counts_.size() < tiles) counts_ = std::vector<std::atomic<int>>(tiles);
    for (std::atomic<int>& count : counts_) count.store(0, std::memory_order_relaxed);
  }

  // Increments and returns the count. Acquire-release: the caller sees what the earlier callers wrote.
  int count(int tile) { return counts_[tile].fetch_add(1, std::memory_order_acq_rel) + 1; }

 private:
  std::vector<std::atomic<int>> counts_;
};

class PagedAttention final : public Attention {
 public:
  PagedAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, AttendFunction attend,
                 int threads)
      : shape_(shape),
        store_(store),
        rope_(rope),
        attend_(attend),
        plan_(shape, store, rope.positions()),
        group_(plan_.group),
        scratch_(threads, scratchFloats(int64_t{plan_.tileTokens} * group_, shape.headDim)) {}

  void run(const Batch& batch, const AttentionInput& input, const KvLayer& layer,
           const ParallelFor& parallelFor) override {
    plan_.make(batch);
    if (static_cast<int64_t>(partials_.size()) < plan_.partialFloats) partials_.resize(plan_.partialFloats);
    forEach(static_cast<int>((batch.rows.size() + kWriteRows - 1) / kWriteRows), parallelFor,
            [&](int i) { write(batch, input, layer, i * kWriteRows); });
    ended_.reset(plan_.queryTiles.size());
    forEach(static_cast<int>(plan_.tasks.size()), parallelFor, [&](int i) {
      const Task& task = plan_.tasks[i];
      const QueryTile& tile = plan_.queryTiles[task.queryTile];
      attend(batch, input, layer, task);
      // The thread that finishes the last range of a tile merges it; a second parallel pass would cost more.
      if (tile.ranges > 1 && ended_.count(task.queryTile) == tile.ranges) merge(input, tile);
    });
  }

 private:
  // Rotates the keys of kWriteRows rows for their own index and writes keys and values to the slots.
  void write(const Batch& batch, const AttentionInput& input, const KvLayer& layer, int firstRow) const {
    const int dim = shape_.headDim, half = dim / 2;
    const int end = std::min(firstRow + kWriteRows, static_cast<int>(batch.rows.size()));
    float key[kMaxHeadDim];
    for (int row = firstRow; row < end; row++) {
      const float* cosines = rope_.row(batch.rows[row].index);
      const float* sines = cosines + half;
      for (int h = 0; h < shape_.kvHeads; h++) {
        const int64_t at = (int64_t{row} * shape_.kvHeads + h) * dim;
        const float* k = input.k + at;
        for (int d = 0; d < half; d++) {
          key[d] = k[d] * cosines[d] - k[half + d] * sines[d];
          key[half + d] = k[half + d] * cosines[d] + k[d] * sines[d];
        }
        writeSlot(store_, layer, h, batch.rows[row].slot, key, input.v + at);
      }
    }
  }

  void attend(const Batch& batch, const AttentionInput& input, const KvLayer& layer, const Task& task) {
    const QueryTile& tile = plan_.queryTiles[task.queryTile];
    const int64_t headElements = store_.slots * store_.headDim;
    const int64_t headBytes = headElements * static_cast<int64_t>(bytesPerElement(store_.type));
    const int64_t row = (int64_t{tile.firstRow} * shape_.heads + int64_t{tile.kvHead} * group_) * shape_.headDim;
    AttendJob job;
    job.type = store_.type;
    job.headDim = shape_.headDim;
    job.heads = shape_.heads;
    job.group = group_;
    job.scoreScale = shape_.scale * 1.44269504f;
    job.rope = rope_.row(0);
    job.batchInvariant = tile.batchInvariant;
    job.tokens = &batch.rows[tile.firstRow];
    job.tokenCount = tile.rowCount;
    job.q = input.q + row;
    job.segments = &plan_.segments[tile.firstSegment + task.range * tile.rangeSegments];
    job.segmentCount = std::min(tile.rangeSegments, tile.segmentCount - task.range * tile.rangeSegments);
    job.keys = static_cast<const uint8_t*>(layer.keys) + tile.kvHead * headBytes;
    job.values = static_cast<const uint8_t*>(layer.values) + tile.kvHead * headBytes;
    if (store_.type == KvType::kInt8) {
      job.keyScales = layer.keyScales + tile.kvHead * store_.slots;
      job.valueScales = layer.valueScales + tile.kvHead * store_.slots;
      job.pairScales = layer.pairScales + int64_t{tile.kvHead} * shape_.headDim;
    }
    if (tile.ranges == 1) job.out = input.out + row;
    else job.partial = partials_.data() + tile.partial + task.range * plan_.floatsPerRange(tile);
    scratch_.with([&](float* scratch) {
      job.scratch = scratch;
      attend_(job);
    });
  }

  // Merges the partial results (ranges, rows, headDim) of a query tile, relative to the largest score of all ranges. A
  // range that a row does not see has weight zero, so a row that sees one range gets the same bits as without a split.
  void merge(const AttentionInput& input, const QueryTile& tile) const {
    const int rows = tile.rowCount * group_, dim = shape_.headDim;
    const float* first = partials_.data() + tile.partial;
    const int64_t stride = plan_.floatsPerRange(tile);
    for (int r = 0; r < rows; r++) {
      const int64_t maximumAt = int64_t{rows} * dim + r, weightAt = maximumAt + rows;
      float maximum = first[maximumAt];
      for (int i = 1; i < tile.ranges; i++) maximum = std::max(maximum, first[i * stride + maximumAt]);
      float sum[kMaxHeadDim] = {};
      float weight = 0;
      for (int i = 0; i < tile.ranges; i++) {
        const float* partial = first + i * stride;
        const float factor = std::exp2(partial[maximumAt] - maximum);
        weight += factor * partial[weightAt];
        for (int d = 0; d < dim; d++) sum[d] += factor * partial[int64_t{r} * dim + d];
      }
      const int64_t row = tile.firstRow + r / group_;
      float* out = input.out + (row * shape_.heads + int64_t{tile.kvHead} * group_ + r % group_) * dim;
      const float inverse = 1.0f / weight;
      for (int d = 0; d < dim; d++) out[d] = sum[d] * inverse;
    }
  }

  AttentionShape shape_;
  KvShape store_;
  const Rope& rope_;
  AttendFunction attend_;
  AttentionPlan plan_;
  int group_;
  ScratchPool scratch_;
  Ended ended_;
  std::vector<float> partials_;  // reused between calls
};

AttendFunction attendFor(Isa isa) {
  switch (isa) {
#ifdef __x86_64__
    case Isa::kAvx2: return attendAvx2;
    case Isa::kAvx512: return attendAvx512;
    case Isa::kAvx512Bf16: return attendAvx512Bf16;
#ifdef POCKET_AMX
    case Isa::kAmx: return attendAmx;
#endif
#endif
    default: return attendPortable;
  }
}

}  // namespace

std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope,
                                         AttendFunction attend, int threads) {
  if (shape.headDim < 16 || shape.headDim > kMaxHeadDim || shape.headDim % 16 != 0 || shape.kvHeads < 1 ||
      shape.heads < 1 || shape.heads % shape.kvHeads != 0 || threads < 1)
    throw error("BAD_ARGUMENT",
                "%d heads over %d kv heads of %d dimensions on %d threads: heads are shared evenly, "
                "dimensions come in 16s up to %d",
                shape.heads, shape.kvHeads, shape.headDim, threads, kMaxHeadDim);
  if (store.kvHeads != shape.kvHeads || store.headDim != shape.headDim || store.slots % kTile != 0)
    throw error("BAD_ARGUMENT", "a store of %d kv heads of %d and %lld slots for attention with %d of %d",
                store.kvHeads, store.headDim, static_cast<long long>(store.slots), shape.kvHeads, shape.headDim);
  return std::make_unique<PagedAttention>(shape, store, rope, attend, threads);
}

std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, Isa isa,
                                         int threads) {
  requireSupported(isa);
  return makeAttention(shape, store, rope, attendFor(isa), threads);
}

}  // namespace pocket
