#include "runtime/thread_pool.h"

#include <algorithm>
#include <utility>

namespace pocket {

namespace {

// Waits some tens of nanoseconds; when it has for some tens of microseconds, another program may have the processor.
class Patience {
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

// A thread's way through what it was given to read ahead. Loads and no prefetches: a processor drops those that it has
// no room for.
class Team::Reader {
 public:
  explicit Reader(const Place& place) : place_(place) {}

  // Reads the next few lines, less than what a waiting section would notice; false: there are none.
  bool step() {
    // Acquires what was written before the place was given. A place is given again at every step, with nothing done.
    const Ahead* const ahead = place_.ahead.load(std::memory_order_acquire);
    if (ahead != ahead_) {
      ahead_ = ahead;
      done_ = 0;
    }
    if (ahead == nullptr || done_ >= ahead->bytes) return false;
    const size_t end = std::min(ahead->bytes, done_ + kStep);
    read(ahead->first, end);
    if (ahead->second != nullptr) read(ahead->second, end);
    done_ = end;
    return true;
  }

 private:
  static constexpr size_t kStep = 1024, kLine = 64;

  void read(const uint8_t* from, size_t end) const {
    for (size_t at = done_; at < end; at += kLine) static_cast<void>(*static_cast<const volatile uint8_t*>(from + at));
  }

  const Place& place_;
  const Ahead* ahead_ = nullptr;
  size_t done_ = 0;
};

Team::Team(int threads) : places_(static_cast<size_t>(threads)) {
  try {
    for (int i = 1; i < threads; i++) others_.emplace_back([this, i] { serve(i); });
  } catch (...) {
    leave();
    throw;
  }
}

Team::~Team() { leave(); }

void Team::leave() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    awake_.store(false);
  }
  woken_.notify_all();
  for (std::thread& other : others_) other.join();
}

void Team::wake() {
  if (others_.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    awake_.store(true);
  }
  woken_.notify_all();
}

void Team::rest() { awake_.store(false); }

void Team::ahead(int thread, const Ahead* place) {
  places_[static_cast<size_t>(thread)].ahead.store(place, std::memory_order_release);
}

void Team::run(int count, const std::function<void(int)>& body) {
  body_ = &body;
  count_ = count;
  const bool own = count <= std::min(threads(), kMaxOwn);
  left_.store(own ? (uint64_t{1} << count) - 1 : 0, std::memory_order_relaxed);
  next_.store(own ? count : 0, std::memory_order_relaxed);
  door_.fetch_add(kNext - kClosed, std::memory_order_release);
  drain(0);
  door_.fetch_or(kClosed, std::memory_order_relaxed);
  Patience patience;
  Reader reader(places_[0]);
  while ((door_.load(std::memory_order_acquire) & (kClosed - 1)) != 0)
    if (!reader.step()) patience.wait();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// A body that nobody has begun, the thread's own if possible; count_ or more: there is none.
int Team::claim(int thread) {
  for (uint64_t left; (left = left_.load(std::memory_order_relaxed)) != 0;) {
    const uint64_t own = thread < kMaxOwn ? uint64_t{1} << thread : 0;
    const uint64_t wanted = (left & own) != 0 ? own : left & (~left + 1);
    if ((left_.fetch_and(~wanted, std::memory_order_relaxed) & wanted) != 0) return __builtin_ctzll(wanted);
  }
  return next_.fetch_add(1, std::memory_order_relaxed);
}

void Team::drain(int thread) {
  for (int i = claim(thread); i < count_; i = claim(thread)) {
    try {
      (*body_)(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

void Team::serve(int thread) {
  uint64_t seen = 0;
  Reader reader(places_[static_cast<size_t>(thread)]);
  for (Patience patience;;) {
    if (!awake_.load(std::memory_order_relaxed)) {
      std::unique_lock<std::mutex> lock(mutex_);
      woken_.wait(lock, [this] { return awake_ || ended_; });
      if (ended_) return;
    }
    const uint64_t door = door_.load(std::memory_order_relaxed);
    if ((door & kClosed) != 0 || door / kNext == seen) {
      if (!reader.step()) patience.wait();
      continue;
    }
    // What was open may be closed by now, or closed and opened again.
    const uint64_t entered = door_.fetch_add(kOne, std::memory_order_acquire);
    if ((entered & kClosed) == 0) {
      seen = entered / kNext;
      drain(thread);
    }
    door_.fetch_sub(kOne, std::memory_order_release);
    patience = {};
  }
}

}  // namespace pocket
