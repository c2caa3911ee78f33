// The clock of parts: what is counted, that runs inside runs count in both, and that parts stay where they are.
#include <stdexcept>
#include <thread>

#include "support/check.h"
#include "runtime/profiler.h"

using namespace pocket;

namespace {

void passMilliseconds(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

}  // namespace

TEST("parts come in the order in which they were added and stay where they are while others come") {
  Parts parts;
  Part& first = parts.add("first");
  for (int i = 0; i < 1000; i++) parts.add(std::to_string(i));
  { const Timed timed(first); }
  CHECK_EQ(parts.all().size(), 1001);
  CHECK(&parts.all().front() == &first);
  CHECK_EQ(parts.all()[0].runs, 1);
  CHECK(parts.all()[7].name == "6");
  CHECK_EQ(parts.all()[7].runs, 0);
  CHECK_EQ(parts.all()[7].nanoseconds, 0);
}

TEST("a run counts its time also in the part around it, and adds to the runs before it") {
  Parts parts;
  Part& whole = parts.add("whole");
  Part& inner = parts.add("inner");
  const auto begin = std::chrono::steady_clock::now();
  {
    const Timed timed(whole);
    passMilliseconds(2);
    for (int i = 0; i < 2; i++) {
      const Timed timedToo(inner);
      passMilliseconds(2);
    }
  }
  const auto all = std::chrono::steady_clock::now() - begin;
  CHECK_EQ(whole.runs, 1);
  CHECK_EQ(inner.runs, 2);
  CHECK(inner.nanoseconds >= 4000000);
  CHECK(whole.nanoseconds >= inner.nanoseconds + 2000000);
  CHECK(whole.nanoseconds <= std::chrono::duration_cast<std::chrono::nanoseconds>(all).count());
}

TEST("a run that ends by an exception is counted") {
  Part part;
  try {
    const Timed timed(part);
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  CHECK_EQ(part.runs, 1);
}
