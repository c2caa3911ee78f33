// Threads of ours for the operators of a step. While a step is on they look for work all the time, because a step of
// one row has some hundred parallel sections of about 0.1 ms, and a thread that must be woken comes too late for most
// of them; between steps they sleep. A section does not wait for a thread that has not come: the caller finishes alone.
// Who waits for work meanwhile reads memory that it was told of, so that the next section finds a part of its own in a
// near cache. It knows no operator.
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

// Memory that a thread will read soon: `bytes` from `first` on and, where there is a second place, as many from that,
// in turns with them. It is read, so it must be there.
struct Ahead {
  const uint8_t* first = nullptr;
  const uint8_t* second = nullptr;
  size_t bytes = 0;
};

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
  // body is thrown then. One call at a time; asks for no memory. Of no more bodies than threads, thread i (0 is the
  // caller) runs body i, unless it comes so late that another was through with its own.
  void run(int count, const std::function<void(int)>& body);

  int threads() const { return static_cast<int>(others_.size()) + 1; }

  // From now on thread `thread`, awake, reads there, into its caches, whenever it waits for a section to begin or to
  // end. Null: nowhere. The place and its memory outlive the team: nobody waits for a thread to have turned away.
  void ahead(int thread, const Ahead* place);

 private:
  class Reader;
  struct alignas(64) Place {
    std::atomic<const Ahead*> ahead{nullptr};
  };

  void serve(int thread);
  void drain(int thread);
  int claim(int thread);
  void leave();

  // A section's number, whether it is closed, and how many of the threads are in it, in one word: who enters an open
  // one is waited for, who comes later has not touched it.
  static constexpr uint64_t kOne = 1, kClosed = uint64_t{1} << 31, kNext = uint64_t{1} << 32;
  alignas(64) std::atomic<uint64_t> door_{kClosed};
  const std::function<void(int)>* body_ = nullptr;
  int count_ = 0;
  alignas(64) std::atomic<int> next_{0};
  static constexpr int kMaxOwn = 63;
  std::atomic<uint64_t> left_{0};  // bodies nobody has begun, a bit each, where each has a thread of its own
  std::exception_ptr failure_;

  alignas(64) std::atomic<bool> awake_{false};
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<Place> places_;
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
