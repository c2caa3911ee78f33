// Threads of ours for the operators of a step. While a step is on they look for work all the time, because a step of
// one row has some hundred parallel sections of about 0.1 ms, and a thread that must be woken comes too late for most
// of them; between steps they sleep. A section does not wait for a thread that has not come: the caller finishes alone.
// It knows no operator.
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

class Team {
 public:
  // `threads` with the caller's. Throws std::system_error when the system has none left.
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Between the two, threads look for work; outside of them they may be asleep. Not from within a section.
  void wake();
  void rest();

  // Runs body(0) … body(count - 1), each once, in no order, and returns when all have ended. The first exception of a
  // body is thrown then. One call at a time; asks for no memory.
  void run(int count, const std::function<void(int)>& body);

 private:
  void serve();
  void drain();
  void leave();

  // A section's number, whether it is closed, and how many of the threads are in it, in one word: who enters an open
  // one is waited for, who comes later has not touched it.
  static constexpr uint64_t kOne = 1, kClosed = uint64_t{1} << 31, kNext = uint64_t{1} << 32;
  alignas(64) std::atomic<uint64_t> door_{kClosed};
  const std::function<void(int)>* body_ = nullptr;
  int count_ = 0;
  alignas(64) std::atomic<int> next_{0};
  std::exception_ptr failure_;

  alignas(64) std::atomic<bool> awake_{false};
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<std::thread> others_;
};

// A team that is awake as long as this is.
class Awake {
 public:
  explicit Awake(Team& team) : team_(team) { team_.wake(); }
  ~Awake() { team_.rest(); }
  Awake(const Awake&) = delete;
  Awake& operator=(const Awake&) = delete;

 private:
  Team& team_;
};

}  // namespace pocket
