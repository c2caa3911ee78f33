#include "runtime/thread_pool.h"

#include <algorithm>
#include <utility>

namespace pocket {

namespace {

// Each wait is some tens of nanoseconds. After some tens of microseconds it yields the processor to other programs.
class SpinWait {
 public:
  void wait() {
    if (++rounds_ > kRounds) {
      std::this_thread::yield();
      return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

 private:
  static constexpr int kRounds = 4000;
  int rounds_ = 0;
};

}  // namespace

// A thread's progress through its prefetch range. Uses loads, because processors drop prefetch instructions when their
// queues are full.
class ThreadPool::Prefetcher {
 public:
  explicit Prefetcher(const PerThread& self) : self_(self) {}

  // Reads the next few cache lines, in less time than a section would notice. False: nothing is left to read.
  bool step() {
    // Acquire: what the range points to was written before it was published. The same range is published again at
    // every step, and starts from its beginning then.
    const Prefetch* const range = self_.prefetch.load(std::memory_order_acquire);
    if (range != range_) {
      range_ = range;
      done_ = 0;
    }
    if (range == nullptr || done_ >= range->bytes) return false;
    const size_t end = std::min(range->bytes, done_ + kStep);
    read(range->first, end);
    if (range->second != nullptr) read(range->second, end);
    done_ = end;
    return true;
  }

 private:
  static constexpr size_t kStep = 1024, kLine = 64;

  void read(const uint8_t* from, size_t end) const {
    for (size_t at = done_; at < end; at += kLine) static_cast<void>(*static_cast<const volatile uint8_t*>(from + at));
  }

  const PerThread& self_;
  const Prefetch* range_ = nullptr;
  size_t done_ = 0;
};

ThreadPool::ThreadPool(int threads) : perThread_(static_cast<size_t>(threads)) {
  try {
    for (int i = 1; i < threads; i++) others_.emplace_back([this, i] { serve(i); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    active_.store(false);
  }
  changed_.notify_all();
  for (std::thread& other : others_) other.join();
}

void ThreadPool::activate() {
  if (others_.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    active_.store(true);
  }
  changed_.notify_all();
}

void ThreadPool::deactivate() { active_.store(false); }

void ThreadPool::prefetch(int thread, const Prefetch* range) {
  perThread_[static_cast<size_t>(thread)].prefetch.store(range, std::memory_order_release);
}

void ThreadPool::run(int count, const std::function<void(int)>& body) {
  body_ = &body;
  count_ = count;
  const bool own = count <= std::min(threads(), kMaxOwn);
  left_.store(own ? (uint64_t{1} << count) - 1 : 0, std::memory_order_relaxed);
  next_.store(own ? count : 0, std::memory_order_relaxed);
  epoch_.fetch_add(kNext - kClosed, std::memory_order_release);
  drain(0);
  epoch_.fetch_or(kClosed, std::memory_order_relaxed);
  SpinWait spinWait;
  Prefetcher prefetcher(perThread_[0]);
  while ((epoch_.load(std::memory_order_acquire) & (kClosed - 1)) != 0)
    if (!prefetcher.step()) spinWait.wait();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// Takes a body that has not begun, the thread's own if possible. count_ or more: none is left.
int ThreadPool::takeBody(int thread) {
  for (uint64_t left; (left = left_.load(std::memory_order_relaxed)) != 0;) {
    const uint64_t own = thread < kMaxOwn ? uint64_t{1} << thread : 0;
    const uint64_t wanted = (left & own) != 0 ? own : left & (~left + 1);
    if ((left_.fetch_and(~wanted, std::memory_order_relaxed) & wanted) != 0) return __builtin_ctzll(wanted);
  }
  return next_.fetch_add(1, std::memory_order_relaxed);
}

void ThreadPool::drain(int thread) {
  for (int i = takeBody(thread); i < count_; i = takeBody(thread)) {
    try {
      (*body_)(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

void ThreadPool::serve(int thread) {
  uint64_t seen = 0;
  Prefetcher prefetcher(perThread_[static_cast<size_t>(thread)]);
  for (SpinWait spinWait;;) {
    if (!active_.load(std::memory_order_relaxed)) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return active_ || ended_; });
      if (ended_) return;
    }
    const uint64_t epoch = epoch_.load(std::memory_order_relaxed);
    if ((epoch & kClosed) != 0 || epoch / kNext == seen) {
      if (!prefetcher.step()) spinWait.wait();
      continue;
    }
    // The section may have closed since the load, or closed and a new one opened.
    const uint64_t entered = epoch_.fetch_add(kOne, std::memory_order_acquire);
    if ((entered & kClosed) == 0) {
      seen = entered / kNext;
      drain(thread);
    }
    epoch_.fetch_sub(kOne, std::memory_order_release);
    spinWait = {};
  }
}

}  // namespace pocket
