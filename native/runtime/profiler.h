// Splits the time of a runner's steps: per named entry the number of runs and their time since the model was
// opened. Always on; a measurement reads the clock twice, about 50 ns. Entries are added while the graph is loaded, so
// that a step neither allocates nor locks. Not synchronised: one step at a time writes, and reads happen between steps.
// The times are wall times of the thread that began the entry, including its waits for other threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace pocket {

struct ProfileEntry {
  std::string name;
  int64_t runs = 0;
  int64_t nanoseconds = 0;
};

// Entries in the order of their addition. Their addresses are stable.
class Profiler {
 public:
  ProfileEntry& add(std::string name) { return entries_.emplace_back(ProfileEntry{std::move(name)}); }
  const std::deque<ProfileEntry>& entries() const { return entries_; }

 private:
  std::deque<ProfileEntry> entries_;
};

// Counts one run, from the construction to the end of the scope.
class ScopedTimer {
 public:
  explicit ScopedTimer(ProfileEntry& entry) : entry_(entry), begin_(std::chrono::steady_clock::now()) {}
  ~ScopedTimer() {
    const auto spent = std::chrono::steady_clock::now() - begin_;
    entry_.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    entry_.runs++;
  }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  ProfileEntry& entry_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace pocket
