#include "team.h"

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

Team::Team(int threads) {
  try {
    for (int i = 1; i < threads; i++) others_.emplace_back([this] { serve(); });
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

void Team::run(int count, const std::function<void(int)>& body) {
  body_ = &body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  door_.fetch_add(kNext - kClosed, std::memory_order_release);
  drain();
  door_.fetch_or(kClosed, std::memory_order_relaxed);
  Patience patience;
  while ((door_.load(std::memory_order_acquire) & (kClosed - 1)) != 0) patience.wait();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Team::drain() {
  for (int i = next_++; i < count_; i = next_++) {
    try {
      (*body_)(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }
}

void Team::serve() {
  uint64_t seen = 0;
  for (Patience patience;;) {
    if (!awake_.load(std::memory_order_relaxed)) {
      std::unique_lock<std::mutex> lock(mutex_);
      woken_.wait(lock, [this] { return awake_ || ended_; });
      if (ended_) return;
    }
    const uint64_t door = door_.load(std::memory_order_relaxed);
    if ((door & kClosed) != 0 || door / kNext == seen) {
      patience.wait();
      continue;
    }
    // What was open may be closed by now, or closed and opened again.
    const uint64_t entered = door_.fetch_add(kOne, std::memory_order_acquire);
    if ((entered & kClosed) == 0) {
      seen = entered / kNext;
      drain();
    }
    door_.fetch_sub(kOne, std::memory_order_release);
    patience = {};
  }
}

}  // namespace pocket
