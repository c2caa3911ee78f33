// Where the time of a runner's steps went: each part under its name, how often it ran and for how long, since the model
// was opened. Always counted: two looks at the clock a run cost some 50 ns, and a step has some two hundred runs. Parts are
// named while a graph is loaded; on a step's way nothing is asked for and nothing locked. One step at a time counts, and
// nobody reads meanwhile. Times are those of the thread that began the part, its waiting for others included. Knows
// neither operators nor ONNX Runtime.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace pocket {

struct Part {
  std::string name;
  int64_t runs = 0;
  int64_t nanoseconds = 0;
};

// In the order in which they were added. A part stays where it is as long as this lives.
class Parts {
 public:
  Part& add(std::string name) { return parts_.emplace_back(Part{std::move(name)}); }
  const std::deque<Part>& all() const { return parts_; }

 private:
  std::deque<Part> parts_;
};

// One run of a part, from here to the end of the scope, also when that is left by an exception.
class Timed {
 public:
  explicit Timed(Part& part) : part_(part), begin_(std::chrono::steady_clock::now()) {}
  ~Timed() {
    const auto spent = std::chrono::steady_clock::now() - begin_;
    part_.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    part_.runs++;
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Part& part_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace pocket
