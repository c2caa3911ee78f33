// Times the attention kernel alone: two threads (one with --one), a store that was just written. A row
// names its condition; run with words to choose rows (all words must occur), with --json for lines of JSON.
//
//   attention_bench prefill f16      attention_bench decode avx512bf16 --one      attention_bench --json
//
// A multiply-add is one of the 2 * headDim per query head, row and visible key (scores, then values). Best and
// median of the repetitions; a repetition includes writing the chunk's own keys and values. KV GB/s is of the median,
// with the bandwidth of plain reading in the first row. A prefill has one layer, whose pages may fit a cache; decodes
// go round as many layers as a model has, because there the question is how fast cells come from memory. So do edits:
// rows behind the first 64 cells, and one behind all cells, as a compaction leaves them to be computed.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "attention/attention.h"
#include "bench.h"
#include "runtime/thread_pool.h"

using namespace pocket;

namespace {

struct Case {
  const char* what;  // prefill, decode or edit
  int rows;
  int depth;  // cells in front of the first row; of an edit, of the last
  int deltas;  // distinct deltas in them, as after deltas - 1 compactions

  bool isEdit() const { return *what == 'e'; }
  int layers() const { return rows == 1 || isEdit() ? 24 : 1; }
  double keys() const;  // that all rows see together
};

constexpr int kFront = 64;  // cells in front of an edit

double Case::keys() const {
  if (!isEdit()) return double(rows) * depth + double(rows) * (rows + 1) / 2;
  return double(rows - 1) * kFront + double(rows - 1) * rows / 2 + depth + 1;
}

constexpr Case kCases[] = {{"prefill", 512, 0, 1},     {"prefill", 512, 512, 1},    {"prefill", 512, 4096, 1},
                           {"prefill", 512, 16384, 1}, {"prefill", 512, 16384, 21}, {"prefill", 64, 512, 1},
                           {"prefill", 64, 4096, 1},   {"prefill", 64, 16384, 1},   {"prefill", 8, 512, 1},
                           {"prefill", 8, 4096, 1},    {"prefill", 8, 16384, 1},    {"decode", 1, 512, 1},
                           {"decode", 1, 4096, 1},     {"decode", 1, 16384, 1},     {"decode", 1, 16384, 21},
                           {"edit", 201, 12000, 2},    {"edit", 200, 263, 1}};

struct Model {
  const char* name;
  AttentionShape shape;
};
const Model kModels[] = {{"qwen2.5-0.5b", {14, 2, 64, 0.125f}},
                         {"qwen2.5-1.5b", {12, 2, 128, 0.088388f}},
                         {"smollm2-135m", {9, 3, 64, 0.125f}}};

// Cells in their first slots, those of the edit behind them.
Batch editOf(const Case& c) {
  const int gap = c.rows - 1, end = kFront + gap, behind = c.depth - end;
  Batch batch;
  batch.stretches = {{0, kFront, 0, 0}, {c.depth - gap, gap, kFront, 0}};
  if (behind > 0) batch.stretches.push_back({kFront, behind, end, -4000});
  batch.stretches.push_back({c.depth, 1, c.depth, 0});
  for (int r = 0; r < gap; r++) batch.rows.push_back({kFront + r, c.depth - gap + r});
  batch.rows.push_back({c.depth, c.depth});
  batch.entries.push_back({0, c.rows, 0, static_cast<int32_t>(batch.stretches.size())});
  return batch;
}

Batch batchOf(const Case& c) {
  if (c.isEdit()) return editOf(c);
  Batch batch;
  const int perDelta = (c.depth + c.deltas - 1) / c.deltas;
  for (int i = 0; i < c.depth; i += perDelta)
    batch.stretches.push_back({i, std::min(perDelta, c.depth - i), i, -(i / std::max(perDelta, 1)) * 100});
  batch.stretches.push_back({c.depth, c.rows, c.depth, 0});
  for (int r = 0; r < c.rows; r++) batch.rows.push_back({c.depth + r, c.depth + r});
  batch.entries.push_back({0, c.rows, 0, static_cast<int32_t>(batch.stretches.size())});
  return batch;
}

// Bytes a second that two threads read from memory larger than the caches: what a decode could reach at best.
double readBandwidth() {
  constexpr size_t kBytes = size_t{512} << 20, kPart = size_t{1} << 20;
  std::vector<uint64_t> memory(kBytes / sizeof(uint64_t), 1);
  std::vector<uint64_t> sums(kBytes / kPart);
  ThreadPool pool(2);
  const ActiveScope active(pool);
  double best = 0;
  for (int repetition = 0; repetition < 8; repetition++) {
    const auto before = std::chrono::steady_clock::now();
    pool.run(static_cast<int>(sums.size()), [&](int part) {
      const uint64_t* from = memory.data() + part * (kPart / sizeof(uint64_t));
      sums[static_cast<size_t>(part)] += sumOf(from, kPart / sizeof(uint64_t));
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
    best = std::max(best, double(kBytes) / seconds);
  }
  if (sums[0] % (kPart / sizeof(uint64_t)) != 0) std::fprintf(stderr, "the reads were not made\n");
  return best;
}

void copyLayer(const KvShape& kv, const KvLayer& from, const KvLayer& to) {
  const size_t elements = static_cast<size_t>(kv.kvHeads * kv.tiles() * kv.tileElements());
  const size_t scales = static_cast<size_t>(kv.kvHeads * kv.slots) * sizeof(float);
  std::memcpy(to.keys, from.keys, elements * bytesPerElement(kv.type));
  std::memcpy(to.values, from.values, elements * bytesPerElement(kv.type));
  if (to.keyScales != nullptr) std::memcpy(to.keyScales, from.keyScales, scales);
  if (to.valueScales != nullptr) std::memcpy(to.valueScales, from.valueScales, scales);
}

Timing measure(const AttentionShape& shape, KvType type, Isa isa, const Case& c, int threads) {
  const KvShape kv{c.layers(), shape.kvHeads, shape.headDim, (c.depth + c.rows + 15) / 16 * 16, type};
  KvStore store(kv);
  const Rope rope(shape.headDim, 32768, 1e6);
  const auto attention = makeAttention(shape, kv, rope, isa, threads);
  std::mt19937 random(1);
  std::normal_distribution<float> draw;
  std::vector<float> some(4096 + 2 * shape.headDim);
  for (float& x : some) x = draw(random);
  for (int slot = 0; slot < c.depth; slot++)
    for (int h = 0; h < shape.kvHeads; h++) {
      const float* at = &some[(slot * 37 + h * 11) % 4096];
      writeSlot(kv, store.layer(0), h, slot, at, at + shape.headDim);
    }
  for (int i = 1; i < kv.layers; i++) copyLayer(kv, store.layer(0), store.layer(i));
  std::vector<float> q(size_t(c.rows) * shape.heads * shape.headDim), out(q.size());
  std::vector<float> k(size_t(c.rows) * shape.kvHeads * shape.headDim), v(k.size());
  for (std::vector<float>* numbers : {&q, &k, &v})
    for (float& x : *numbers) x = draw(random);
  const Batch batch = batchOf(c);
  ThreadPool pool(threads);
  const ActiveScope active(pool);
  const ParallelFor parallelFor = [&](int count, const std::function<void(int)>& body) { pool.run(count, body); };
  std::vector<double> seconds;
  const auto start = std::chrono::steady_clock::now();
  int layer = 0;
  for (double spent = 0; seconds.size() < 3 || (spent < 0.5 && seconds.size() < 2000);) {
    layer = (layer + 1) % kv.layers;
    const auto before = std::chrono::steady_clock::now();
    attention->run(batch, {q.data(), k.data(), v.data(), out.data()}, store.layer(layer), parallelFor);
    const auto after = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(after - before).count());
    spent = std::chrono::duration<double>(after - start).count();
  }
  return timingOf(seconds);
}

void report(const Model& model, KvType type, Isa isa, const Case& c, const std::string& row, int threads, bool json) {
  const Timing timing = measure(model.shape, type, isa, c, threads);
  const double macs = 2.0 * model.shape.headDim * model.shape.heads * c.keys();
  const double cellBytes = 2.0 * model.shape.kvHeads * model.shape.headDim * double(bytesPerElement(type));
  const double read = cellBytes * (c.depth + (c.isEdit() ? 1 : c.rows));
  const double best = macs / timing.best * 1e-9, median = macs / timing.median * 1e-9;
  if (json)
    std::printf("{\"row\":\"%s\",\"ms\":%.4f,\"msBest\":%.4f,\"gmacs\":%.1f,\"gmacsBest\":%.1f,\"kvGBs\":%.1f}\n",
                row.c_str(), timing.median * 1e3, timing.best * 1e3, median, best, read / timing.median * 1e-9);
  else
    std::printf("| %-58s | %9.3f | %9.3f | %7.1f | %7.1f | %6.1f |\n", row.c_str(), timing.median * 1e3,
                timing.best * 1e3, median, best, read / timing.median * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  char** const end =
      std::remove_if(arguments + 1, arguments + count, [](const char* a) { return std::string(a) == "--one"; });
  const int threads = end == arguments + count ? 2 : 1;
  const Words words(static_cast<int>(end - arguments), arguments);
  const bool json = words.json;
  if (!json) {
    std::printf("| %-58s | %9s | %9s | %7s | %7s | %6s |\n", threads == 2 ? "row (2 threads)" : "row (1 thread)",
                "ms median", "ms best", "GMAC/s", "best", "KV GB/s");
    std::printf("|---|--:|--:|--:|--:|--:|\n");
  }
  const double bandwidth = readBandwidth() * 1e-9;
  if (json) std::printf("{\"row\":\"read\",\"GBs\":%.1f}\n", bandwidth);
  else
    std::printf("| %-58s | %9s | %9s | %7s | %7s | %6.1f |\n", "reading 512 MiB, 2 threads", "", "", "", "", bandwidth);
  int rows = 0;
  for (const Model& model : kModels)
    for (Isa isa : supportedIsas())
      for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8})
        for (const Case& c : kCases) {
          const std::string row = std::string(c.what) + " " + std::to_string(c.rows) + " rows @ d" +
                                  std::to_string(c.depth) + " deltas=" + std::to_string(c.deltas) + " " + name(type) +
                                  " " + name(isa) + " " + model.name;
          if (!words.choose(row)) continue;
          report(model, type, isa, c, row, threads, json);
          rows++;
        }
  if (rows == 0) std::fprintf(stderr, "no row has all of these words; run without words to see the rows\n");
  return rows == 0 ? 1 : 0;
}
