// The threads that run the parallel sections of operators. During a step the threads spin: a decode step has a few
// hundred sections of about 0.1 ms, and waking a sleeping thread takes too long for most of them. Between steps the
// threads sleep. A section never waits for a thread that has not entered it: the caller runs the remaining bodies
// itself. A thread without work reads memory that it was told to prefetch, so that the data of the next section is in
// its cache. Knows no operator.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pocket {

// Memory that a thread will read soon: [first, first + bytes) and, unless null, [second, second + bytes), alternately.
// It must be readable: prefetching is done by loads.
struct Prefetch {
  const uint8_t* first = nullptr;
  const uint8_t* second = nullptr;
  size_t bytes = 0;
};

class ThreadPool {
 public:
  // `threads` includes the caller's. Throws std::system_error if the system has no thread left.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Between the two the threads spin; otherwise they may sleep. Not from within a section.
  void activate();
  void deactivate();

  // Runs body(0) … body(count - 1), each once, in any order, and returns when all have ended. Then rethrows the first
  // exception of a body. One call at a time; allocates nothing. If there are no more bodies than threads, thread i
  // (0 is the caller) runs body i, unless another thread was done first and took it.
  void run(int count, const std::function<void(int)>& body);

  int threads() const { return static_cast<int>(others_.size()) + 1; }

  // From now on thread `thread` reads this memory whenever it waits for a section to begin or to end. Null: nothing.
  // `range` and its memory must outlive the pool, because a thread may still be reading them.
  void prefetch(int thread, const Prefetch* range);

 private:
  class Prefetcher;
  struct alignas(64) PerThread {
    std::atomic<const Prefetch*> prefetch{nullptr};
  };

  void serve(int thread);
  void drain(int thread);
  int takeBody(int thread);
  void stop();

  // One word: the number of the section, whether it is closed, and how many threads are inside. run() waits for the
  // threads that entered an open section; a thread that finds it closed has touched nothing.
  static constexpr uint64_t kOne = 1, kClosed = uint64_t{1} << 31, kNext = uint64_t{1} << 32;
  alignas(64) std::atomic<uint64_t> epoch_{kClosed};
  const std::function<void(int)>* body_ = nullptr;
  int count_ = 0;
  alignas(64) std::atomic<int> next_{0};
  static constexpr int kMaxOwn = 63;
  std::atomic<uint64_t> left_{0};  // one bit per body that has not begun, if every body has a thread of its own
  std::exception_ptr failure_;

  alignas(64) std::atomic<bool> active_{false};
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PerThread> perThread_;
  std::vector<std::thread> others_;
};

// Keeps a pool active for its lifetime.
class ActiveScope {
 public:
  explicit ActiveScope(ThreadPool& pool) : pool_(pool) { pool_.activate(); }
  ~ActiveScope() { pool_.deactivate(); }
  ActiveScope(const ActiveScope&) = delete;
  ActiveScope& operator=(const ActiveScope&) = delete;

 private:
  ThreadPool& pool_;
};

}  // namespace pocket
