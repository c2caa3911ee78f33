// The clock of profiler: what is counted, that runs inside runs count in both, and that profiler stay where they are.
#include <stdexcept>
#include <thread>

#include "runtime/profiler.h"
#include "support/check.h"

using namespace pocket;

namespace {

void passMilliseconds(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

}  // namespace

TEST("profiler come in the order in which they were added and stay where they are while others come") {
  Profiler profiler;
  ProfileEntry& first = profiler.add("first");
  for (int i = 0; i < 1000; i++) profiler.add(std::to_string(i));
  {
    const ScopedTimer timed(first);
  }
  CHECK_EQ(profiler.entries().size(), 1001);
  CHECK(&profiler.entries().front() == &first);
  CHECK_EQ(profiler.entries()[0].runs, 1);
  CHECK(profiler.entries()[7].name == "6");
  CHECK_EQ(profiler.entries()[7].runs, 0);
  CHECK_EQ(profiler.entries()[7].nanoseconds, 0);
}

TEST("a run counts its time also in the entry around it, and adds to the runs before it") {
  Profiler profiler;
  ProfileEntry& whole = profiler.add("whole");
  ProfileEntry& inner = profiler.add("inner");
  const auto begin = std::chrono::steady_clock::now();
  {
    const ScopedTimer timed(whole);
    passMilliseconds(2);
    for (int i = 0; i < 2; i++) {
      const ScopedTimer timedToo(inner);
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
  ProfileEntry entry;
  try {
    const ScopedTimer timed(entry);
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  CHECK_EQ(entry.runs, 1);
}
