// How fast all cores together read memory that no cache holds: the bound of decode, which reads every weight once a
// token. One thread a core, each over its own part, nothing written, in large pages where the system has them: they are
// read faster, and a limit is to be one. Arguments: threads (default 2), repetitions
// (default 5), MiB (default 1024: far beyond any cache). With --json a line of JSON, else a sentence.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

using namespace pocket;

namespace {

constexpr size_t kLanes = 16;  // words are cut in parts that sumOf takes whole

// Bytes a second of one pass over all words.
double measure(const uint64_t* words, size_t count, int threads, uint64_t expected) {
  std::vector<uint64_t> sums(threads);
  std::vector<std::thread> others;
  const size_t part = count / threads / kLanes * kLanes;
  const auto start = std::chrono::steady_clock::now();
  for (int t = 1; t < threads; t++) others.emplace_back([&, t] { sums[t] = sumOf(words + t * part, part); });
  sums[0] = sumOf(words, part);
  for (std::thread& other : others) other.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  uint64_t total = 0;
  for (uint64_t one : sums) total += one;
  // The sum is needed, so the reading cannot be left out.
  if (total != expected) {
    std::fprintf(stderr, "the sum is wrong: memory or compiler is broken\n");
    std::exit(1);
  }
  return double(part) * threads * sizeof(uint64_t) / seconds.count();
}

struct Free {
  void operator()(uint64_t* memory) const { std::free(memory); }
};

std::unique_ptr<uint64_t[], Free> largePages(size_t bytes) {
  constexpr size_t kLarge = size_t{2} << 20;
  const size_t whole = (bytes + kLarge - 1) / kLarge * kLarge;
  void* memory = std::aligned_alloc(kLarge, whole);
  if (memory == nullptr) {
    std::fprintf(stderr, "there are no %zu bytes of memory\n", whole);
    std::exit(1);
  }
#if defined(__linux__)
  madvise(memory, whole, MADV_HUGEPAGE);
#endif
  return std::unique_ptr<uint64_t[], Free>(static_cast<uint64_t*>(memory));
}

int number(const std::vector<std::string>& words, size_t place, int otherwise) {
  const int given = place < words.size() ? std::atoi(words[place].c_str()) : otherwise;
  return given > 0 ? given : otherwise;
}

}  // namespace

int main(int count, char** arguments) {
  const Words given(count, arguments);
  const int threads = number(given.words, 0, 2), repetitions = number(given.words, 1, 5),
            mebibytes = number(given.words, 2, 1024);
  const size_t words = size_t(mebibytes) * (1 << 20) / sizeof(uint64_t);
  const auto memory = largePages(words * sizeof(uint64_t));
  const size_t part = words / threads / kLanes * kLanes;
  uint64_t expected = 0;
  for (size_t i = 0; i < words; i++) {
    memory[i] = i * 0x9e3779b97f4a7c15;
    if (i < part * threads) expected += memory[i];
  }
  std::vector<double> rates;
  for (int i = 0; i <= repetitions; i++) {
    const double rate = measure(memory.get(), words, threads, expected) * 1e-9;
    if (i > 0) rates.push_back(rate);  // the first finds the threads cold
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  if (given.json)
    std::printf("{\"row\":\"read %d MiB, %d threads\",\"GB/s\":%.2f,\"min\":%.2f,\"max\":%.2f,\"n\":%zu}\n", mebibytes,
                threads, median, rates.front(), rates.back(), rates.size());
  else
    std::printf("%d threads read %d MiB at %.2f GB/s (median of %zu; %.2f to %.2f)\n", threads, mebibytes, median,
                rates.size(), rates.front(), rates.back());
  return 0;
}
