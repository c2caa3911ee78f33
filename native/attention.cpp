// The planning half of the attention kernel: checks a batch, writes its keys and values, cuts the attention into
// jobs and puts the parts of a row together again. The arithmetic of a job is in attention_kernel.h.
//
// How an entry is cut depends on that entry alone, not on the number of threads or on its neighbours in the batch,
// so a row's bits do not either.
#include "attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <thread>

#include "attention_job.h"
#include "error.h"

namespace pocket {
namespace {

using AttendFunction = void (*)(const AttendJob&);

constexpr int kLargestHead = 256;
constexpr int kRangeSegments = 64;  // fewer are not worth a job of their own
constexpr int kMostRanges = 16;     // of one entry's query tiles together
constexpr int kWriteRows = 16;      // a job of the first pass

// A query tile: some neighbouring rows of an entry and the query heads of one kv head. Its segments are cut into
// `ranges` jobs of equal size; the last is shorter.
struct QueryTile {
  int kvHead = 0;
  int firstRow = 0;
  int rowCount = 0;
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

// Scratch memory for as many jobs as run at once. More jobs than that wait for one another; a job must not throw,
// because it may run on a thread that has nobody to catch it.
class ScratchPool {
 public:
  ScratchPool(int count, int64_t floats) : stride_((floats + 15) / 16 * 16), taken_(count) {
    memory_.reset(static_cast<float*>(::operator new(sizeof(float) * stride_ * count, std::align_val_t{64})));
  }

  // Calls use(pointer) with a piece that nobody else has meanwhile.
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

class PagedAttention final : public Attention {
 public:
  PagedAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, AttendFunction attend, int threads)
      : shape_(shape),
        store_(store),
        rope_(rope),
        attend_(attend),
        group_(shape.heads / shape.kvHeads),
        tileTokens_(std::max(1, kJobRows / group_)),
        scratch_(threads, scratchFloats(int64_t{tileTokens_} * group_, shape.headDim)) {}

  void run(const Batch& batch, const AttentionInput& input, const KvLayer& layer,
           const ParallelFor& parallelFor) override {
    check(batch);
    plan(batch);
    forEach(static_cast<int>((batch.rows.size() + kWriteRows - 1) / kWriteRows), parallelFor,
            [&](int i) { write(batch, input, layer, i * kWriteRows); });
    forEach(static_cast<int>(tasks_.size()), parallelFor, [&](int i) { attend(batch, input, layer, tasks_[i]); });
    forEach(static_cast<int>(merges_.size()), parallelFor, [&](int i) { merge(input, queryTiles_[merges_[i]]); });
  }

 private:
  // One job is not worth waking threads for.
  static void forEach(int count, const ParallelFor& parallelFor, const std::function<void(int)>& body) {
    if (count == 1) body(0);
    if (count > 1) parallelFor(count, body);
  }

  void check(const Batch& batch) const {
    const int rows = static_cast<int>(batch.rows.size()), stretches = static_cast<int>(batch.stretches.size());
    for (const Row& row : batch.rows)
      if (row.slot < 0 || row.slot >= store_.slots || row.index < 0 || row.index >= rope_.positions())
        throw error("BAD_ARGUMENT", "row at index %d in slot %d: there are %d positions and %lld slots", row.index,
                    row.slot, rope_.positions(), static_cast<long long>(store_.slots));
    for (const BatchEntry& entry : batch.entries) {
      if (entry.rowCount < 1 || entry.firstRow < 0 || entry.rowCount > rows - entry.firstRow ||
          entry.stretchCount < 1 || entry.firstStretch < 0 || entry.stretchCount > stretches - entry.firstStretch)
        throw error("BAD_ARGUMENT", "entry with rows %d + %d of %d and stretches %d + %d of %d", entry.firstRow,
                    entry.rowCount, rows, entry.firstStretch, entry.stretchCount, stretches);
      checkEntry(batch, entry);
    }
  }

  void checkEntry(const Batch& batch, const BatchEntry& entry) const {
    const Row* row = &batch.rows[entry.firstRow];
    for (int i = 1; i < entry.rowCount; i++)
      if (row[i].index <= row[i - 1].index)
        throw error("BAD_ARGUMENT", "row indices %d, %d do not ascend", row[i - 1].index, row[i].index);
    const int last = row[entry.rowCount - 1].index;
    int next = 0;
    for (int i = 0; i < entry.stretchCount; i++) {
      const Stretch& s = batch.stretches[entry.firstStretch + i];
      const int64_t end = int64_t{s.slot} + s.count;
      if (s.count < 1 || s.slot < 0 || end > store_.slots || s.index != next || int64_t{s.index} - s.delta < 0 ||
          int64_t{last} - s.delta >= rope_.positions())
        throw error("BAD_ARGUMENT", "stretch of %d cells in slot %d at index %d (expected %d), delta %d: %lld slots, %d positions",
                    s.count, s.slot, s.index, next, s.delta, static_cast<long long>(store_.slots), rope_.positions());
      next = s.index + s.count;
    }
    if (next <= last) throw error("BAD_ARGUMENT", "stretches end at index %d, the last row is at %d", next, last);
  }

  void plan(const Batch& batch) {
    segments_.clear();
    queryTiles_.clear();
    tasks_.clear();
    merges_.clear();
    int64_t partials = 0;
    for (int e = 0; e < static_cast<int>(batch.entries.size()); e++) {
      const BatchEntry& entry = batch.entries[e];
      const int firstSegment = static_cast<int>(segments_.size());
      cutStretches(batch, entry);
      const int queryTiles = (entry.rowCount + tileTokens_ - 1) / tileTokens_;
      const int tokens = (entry.rowCount + queryTiles - 1) / queryTiles;  // no small last tile
      for (int row = 0; row < entry.rowCount; row += tokens)
        planTile(batch, e, row, std::min(tokens, entry.rowCount - row), firstSegment, queryTiles, partials);
    }
    if (static_cast<int64_t>(partials_.size()) < partials) partials_.resize(partials);
  }

  // Segments of an entry: its stretches, cut where tiles end and behind the last row.
  void cutStretches(const Batch& batch, const BatchEntry& entry) {
    const int last = batch.rows[entry.firstRow + entry.rowCount - 1].index;
    for (int i = 0; i < entry.stretchCount; i++) {
      const Stretch& s = batch.stretches[entry.firstStretch + i];
      const int count = std::min(s.count, last + 1 - s.index);
      for (int done = 0; done < count;) {
        const int lane = (s.slot + done) % kTile;
        const int taken = std::min(kTile - lane, count - done);
        segments_.push_back({(s.slot + done) / kTile, lane, lane + taken, s.index + done, s.delta});
        done += taken;
      }
    }
  }

  // `row` and `rowCount` within the entry. Adds what its ranges need to `partials`.
  void planTile(const Batch& batch, int entry, int row, int rowCount, int firstSegment, int queryTiles,
                int64_t& partials) {
    QueryTile tile;
    tile.firstRow = batch.entries[entry].firstRow + row;
    tile.rowCount = rowCount;
    tile.firstSegment = firstSegment;
    const int last = batch.rows[tile.firstRow + tile.rowCount - 1].index;
    const auto end = std::upper_bound(segments_.begin() + firstSegment, segments_.end(), last,
                                      [](int index, const Segment& segment) { return index < segment.index; });
    tile.segmentCount = static_cast<int>(end - segments_.begin()) - firstSegment;
    const int wanted = (tile.segmentCount + kRangeSegments - 1) / kRangeSegments;
    const int ranges = std::min(wanted, std::max(1, kMostRanges / queryTiles));
    tile.rangeSegments = (tile.segmentCount + ranges - 1) / ranges;
    tile.ranges = (tile.segmentCount + tile.rangeSegments - 1) / tile.rangeSegments;
    for (tile.kvHead = 0; tile.kvHead < shape_.kvHeads; tile.kvHead++) {
      const int index = static_cast<int>(queryTiles_.size());
      if (tile.ranges > 1) {
        tile.partial = partials;
        partials += tile.ranges * partialFloats(int64_t{tile.rowCount} * group_, shape_.headDim);
        merges_.push_back(index);
      }
      queryTiles_.push_back(tile);
      for (int range = 0; range < tile.ranges; range++) tasks_.push_back({index, range});
    }
  }

  // Rotates the keys of some rows for their own index and writes both sides to the slots.
  void write(const Batch& batch, const AttentionInput& input, const KvLayer& layer, int firstRow) const {
    const int dim = shape_.headDim, half = dim / 2;
    const int end = std::min(firstRow + kWriteRows, static_cast<int>(batch.rows.size()));
    float key[kLargestHead];
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
    const QueryTile& tile = queryTiles_[task.queryTile];
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
    job.tokens = &batch.rows[tile.firstRow];
    job.tokenCount = tile.rowCount;
    job.q = input.q + row;
    job.segments = &segments_[tile.firstSegment + task.range * tile.rangeSegments];
    job.segmentCount = std::min(tile.rangeSegments, tile.segmentCount - task.range * tile.rangeSegments);
    job.keys = static_cast<const uint8_t*>(layer.keys) + tile.kvHead * headBytes;
    job.values = static_cast<const uint8_t*>(layer.values) + tile.kvHead * headBytes;
    if (store_.type == KvType::kInt8) {
      job.keyScales = layer.keyScales + tile.kvHead * store_.slots;
      job.valueScales = layer.valueScales + tile.kvHead * store_.slots;
    }
    if (tile.ranges == 1) job.out = input.out + row;
    else job.partial = partials_.data() + tile.partial + task.range * tilePartialFloats(tile);
    scratch_.with([&](float* scratch) {
      job.scratch = scratch;
      attend_(job);
    });
  }

  // A row's ranges weighed against the largest score of all of them. Ranges that the row saw nothing of have
  // weight zero.
  void merge(const AttentionInput& input, const QueryTile& tile) const {
    const int rows = tile.rowCount * group_, dim = shape_.headDim;
    const float* first = partials_.data() + tile.partial;
    const int64_t stride = tilePartialFloats(tile);
    for (int r = 0; r < rows; r++) {
      const int64_t maximumAt = int64_t{rows} * dim + r, weightAt = maximumAt + rows;
      float maximum = first[maximumAt];
      for (int i = 1; i < tile.ranges; i++) maximum = std::max(maximum, first[i * stride + maximumAt]);
      float sum[kLargestHead] = {};
      float weight = 0;
      for (int i = 0; i < tile.ranges; i++) {
        const float* partial = first + i * stride;
        const float factor = std::exp2(partial[maximumAt] - maximum);
        weight += factor * partial[weightAt];
        for (int d = 0; d < dim; d++) sum[d] += factor * partial[int64_t{r} * dim + d];
      }
      const int64_t row = tile.firstRow + r / group_;
      float* out = input.out + (row * shape_.heads + int64_t{tile.kvHead} * group_ + r % group_) * dim;
      for (int d = 0; d < dim; d++) out[d] = sum[d] / weight;
    }
  }

  int64_t tilePartialFloats(const QueryTile& tile) const {
    return partialFloats(int64_t{tile.rowCount} * group_, shape_.headDim);
  }

  AttentionShape shape_;
  KvShape store_;
  const Rope& rope_;
  AttendFunction attend_;
  int group_;
  int tileTokens_;
  ScratchPool scratch_;
  // Of the run at hand, kept for their memory.
  std::vector<Segment> segments_;
  std::vector<QueryTile> queryTiles_;
  std::vector<Task> tasks_;
  std::vector<int> merges_;  // query tiles of more than one range
  std::vector<float> partials_;
};

AttendFunction attendFor(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return attendPortable;
#ifdef __x86_64__
    case Isa::kAvx2: return attendAvx2;
    case Isa::kAvx512: return attendAvx512;
    case Isa::kAvx512Bf16: return attendAvx512Bf16;
#else
    default: break;
#endif
  }
  return nullptr;
}

}  // namespace

const char* name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512bf16";
  }
  return "unknown";
}

std::vector<Isa> supportedIsas() {
  std::vector<Isa> isas = {Isa::kPortable};
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) isas.push_back(Isa::kAvx2);
  if (avx512) isas.push_back(Isa::kAvx512);
  if (avx512 && __builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::kAvx512Bf16);
#endif
  return isas;
}

std::unique_ptr<Attention> makeAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, Isa isa,
                                         int threads) {
  if (shape.headDim < 16 || shape.headDim > kLargestHead || shape.headDim % 16 != 0 || shape.kvHeads < 1 ||
      shape.heads < 1 || shape.heads % shape.kvHeads != 0 || threads < 1)
    throw error("BAD_ARGUMENT", "%d heads over %d kv heads of %d dimensions on %d threads: heads are shared evenly, "
                "dimensions come in 16s up to %d", shape.heads, shape.kvHeads, shape.headDim, threads, kLargestHead);
  if (store.kvHeads != shape.kvHeads || store.headDim != shape.headDim || store.slots % kTile != 0)
    throw error("BAD_ARGUMENT", "a store of %d kv heads of %d and %lld slots for attention with %d of %d",
                store.kvHeads, store.headDim, static_cast<long long>(store.slots), shape.kvHeads, shape.headDim);
  const std::vector<Isa> isas = supportedIsas();
  if (std::find(isas.begin(), isas.end(), isa) == isas.end())
    throw error("BAD_ARGUMENT", "this machine cannot run the %s kernel", name(isa));
  return std::make_unique<PagedAttention>(shape, store, rope, attendFor(isa), threads);
}

void referenceAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, const Batch& batch,
                        const AttentionInput& input, const KvLayer& layer) {
  const int dim = shape.headDim, half = dim / 2, group = shape.heads / shape.kvHeads;
  std::vector<float> key(dim), value(dim);
  std::vector<double> scores, sum(dim);
  for (const BatchEntry& entry : batch.entries)
    for (int row = entry.firstRow; row < entry.firstRow + entry.rowCount; row++)
      for (int h = 0; h < shape.heads; h++) {
        const int64_t at = (int64_t{row} * shape.heads + h) * dim;
        const float* q = input.q + at;
        double weight = 0, maximum = -INFINITY;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int pass = 0; pass < 2; pass++)  // the first finds the largest score
          for (int i = entry.firstStretch; i < entry.firstStretch + entry.stretchCount; i++) {
            const Stretch& s = batch.stretches[i];
            for (int c = 0; c < s.count && s.index + c <= batch.rows[row].index; c++) {
              readSlot(store, layer, h / group, s.slot + c, key.data(), value.data());
              const float* turn = rope.row(batch.rows[row].index - s.delta);
              double score = 0;
              for (int d = 0; d < half; d++) {
                const double cosine = turn[d], sine = turn[half + d];
                score += (q[d] * cosine - q[half + d] * sine) * key[d];
                score += (q[half + d] * cosine + q[d] * sine) * key[half + d];
              }
              score *= shape.scale;
              if (pass == 0) {
                maximum = std::max(maximum, score);
                continue;
              }
              const double p = std::exp(score - maximum);
              weight += p;
              for (int d = 0; d < dim; d++) sum[d] += p * value[d];
            }
          }
        for (int d = 0; d < dim; d++) input.out[at + d] = static_cast<float>(sum[d] / weight);
      }
}

}  // namespace pocket
