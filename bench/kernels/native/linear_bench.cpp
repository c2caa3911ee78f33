// Times linear layers alone, with the read bandwidth of the machine. A row names its condition; run with words to choose
// rows (all words must occur), with --json for lines of JSON.
//
//   linear_bench 896x4864 q4_0 512      linear_bench decode q4_k 2-threads      linear_bench --json
//
// Weights are random and as many as fill kPoolBytes, called one after the other, so that a call finds none of its own
// in a cache. Best and median of the repetitions: of the thread's own time with one thread, so that other work on the
// machine counts less, and of the clock's with two. A multiply-add is one of rows of x * rows * columns of W; GB/s are
// the packed weights' bytes. `gated` rows are two such matrices, and silu of the one times the other. `read` rows sum a
// buffer of the same size, as plainly as can be.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <string>

#include "bench.h"
#include "linear/linear.h"
#include "runtime/thread_pool.h"

using namespace pocket;

namespace {

struct Shape {
  int columns;
  int rows;
};
constexpr Shape kShapes[] = {{896, 896}, {896, 4864}, {4864, 896}, {1536, 8960}, {896, 151936}};
constexpr int kRows[] = {1, 2, 4, 8, 16, 64, 128, 512};
constexpr size_t kPoolBytes = 160 << 20;

double now(bool ofThread) {
  timespec time;
  clock_gettime(ofThread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Timing timed(double atLeast, int threads, const std::function<void()>& body) {
  std::vector<double> seconds;
  double spent = 0;
  body();
  while (seconds.size() < 5 || (spent < atLeast && seconds.size() < 5000)) {
    const double before = now(threads == 1);
    body();
    seconds.push_back(now(threads == 1) - before);
    spent += seconds.back();
  }
  return timingOf(seconds);
}

// Bytes that are scales somewhere are small numbers of the half format, codes are whatever comes.
std::vector<uint8_t> randomPool(size_t bytes) {
  std::vector<uint8_t> pool(bytes + 64);
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random() & 0x9fff9fff9fff9fffull;
    std::memcpy(pool.data() + i, &word, 8);
  }
  return pool;
}

class Bench {
 public:
  explicit Bench(bool json) : json_(json), pool_(randomPool(kPoolBytes)) {
    both_ = [this](int count, const std::function<void(int)>& body) { pool_.run(count, body); };
    alone_ = [](int count, const std::function<void(int)>& body) {
      for (int i = 0; i < count; i++) body(i);
    };
    if (json_) return;
    std::printf("| %-64s | %9s | %9s | %7s | %7s | %6s |\n", "row", "ms median", "ms best", "GMAC/s", "best", "GB/s");
    std::printf("|---|--:|--:|--:|--:|--:|\n");
  }

  void read(const std::string& row, int threads) {
    constexpr int kPieces = 64;
    constexpr size_t kPiece = kPoolBytes / kPieces;
    std::atomic<uint64_t> total{0};
    const std::function<void(int)> piece = [&](int i) {
      total += sumOf(reinterpret_cast<const uint64_t*>(pool_.data() + i * kPiece), kPiece / sizeof(uint64_t));
    };
    const Timing timing = timed(0.5, threads, [&] { (threads == 1 ? alone_ : both_)(kPieces, piece); });
    print(row, timing, 0, kPoolBytes);
  }

  void multiply(const std::string& row, Isa isa, BlockFormat format, Shape shape, int rows, int threads,
                Activations activations, bool gated) {
    const int sides = gated ? 2 : 1;
    const size_t side = panelBytes(format, shape.rows, shape.columns), bytes = side * sides;
    const int copies = static_cast<int>(std::max<size_t>(1, kPoolBytes / bytes));
    if (bytes > kPoolBytes) pool_ = randomPool(bytes);
    std::vector<float> x(static_cast<size_t>(rows) * shape.columns), out(static_cast<size_t>(rows) * shape.rows);
    std::mt19937 random(1);
    std::normal_distribution<float> draw;
    for (float& number : x) number = draw(random);
    const auto linear = makeLinear(isa, threads);
    int copy = 0;
    const Timing timing = timed(rows > 16 ? 0.6 : 0.4, threads, [&] {
      const uint8_t* panels = pool_.data() + bytes * (copy++ % copies);
      const LinearOutput outputs[] = {{{panels, shape.rows, shape.columns, format}, nullptr, out.data()},
                                      {{panels + side, shape.rows, shape.columns, format}, nullptr, nullptr}};
      linear->run(x.data(), rows, outputs, sides, gated ? Combine::kSwiGlu : Combine::kNone, activations,
                  threads == 1 ? alone_ : both_);
    });
    print(row, timing, double(rows) * shape.rows * shape.columns * sides, bytes);
  }

 private:
  void print(const std::string& row, const Timing& timing, double macs, size_t bytes) const {
    const double median = macs / timing.median * 1e-9, best = macs / timing.best * 1e-9;
    const double read = static_cast<double>(bytes) / timing.median * 1e-9;
    if (json_)
      std::printf("{\"row\":\"%s\",\"ms\":%.4f,\"msBest\":%.4f,\"gmacs\":%.1f,\"gmacsBest\":%.1f,\"gbs\":%.1f}\n",
                  row.c_str(), timing.median * 1e3, timing.best * 1e3, median, best, read);
    else
      std::printf("| %-64s | %9.3f | %9.3f | %7.1f | %7.1f | %6.1f |\n", row.c_str(), timing.median * 1e3,
                  timing.best * 1e3, median, best, read);
    std::fflush(stdout);
  }

  bool json_;
  std::vector<uint8_t> pool_;
  ThreadPool pool_{2};
  const ActiveScope active_{pool_};
  ParallelFor both_, alone_;
};

}  // namespace

int main(int count, char** arguments) {
  const Words words(count, arguments);
  Bench bench(words.json);
  int shown = 0;
  for (int threads : {1, 2}) {
    const std::string row = "read " + std::to_string(threads) + "-threads";
    bench.read(row, threads);
  }
  for (Isa isa : supportedIsas()) {
    const std::string kernel = makeLinear(isa, 1)->kernel();
    for (Activations activations : {Activations::kInt8, Activations::kF32})
      for (BlockFormat format : kBlockFormats)
        for (const Shape& shape : kShapes)
          for (int rows : kRows)
            for (int threads : {1, 2})
              for (bool gated : {false, true}) {
                if (shape.columns % layoutOf(format).recordColumns() != 0) continue;
                if (isa == Isa::kAvx512Bf16) continue;  // the same kernel as avx512
                if (gated && (shape.rows < shape.columns * 2 || shape.rows > shape.columns * 8)) continue;
                const std::string row = std::string(rows <= 8 ? "decode " : "prefill ") + std::to_string(rows) +
                                        " rows " + std::to_string(shape.columns) + "x" + std::to_string(shape.rows) +
                                        " " + name(format) + " " +
                                        (activations == Activations::kInt8 ? "int8" : "f32") + " " + kernel + " " +
                                        std::to_string(threads) + "-threads" + (gated ? " gated" : "");
                if (!words.choose(row)) continue;
                bench.multiply(row, isa, format, shape, rows, threads, activations, gated);
                shown++;
              }
  }
  if (shown == 0) std::fprintf(stderr, "no row has all of these words; run without words to see the rows\n");
  return shown == 0 ? 1 : 0;
}
