// Threads that stay, with many short sections: what is run, how often, and what comes back of a failure.
#include "runtime/thread_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "support/check.h"

using pocket::ActiveScope;
using pocket::Prefetch;
using pocket::ThreadPool;

namespace {

// Whether every body of many sections of different sizes ran once, and what it wrote is there when the section ends.
bool runsAll(ThreadPool& pool, int sections) {
  std::vector<int> runs(17);
  for (int s = 0; s < sections; s++) {
    const int count = s % 17 + 1;
    runs.assign(runs.size(), 0);
    pool.run(count, [&](int i) { runs[static_cast<size_t>(i)]++; });
    for (int i = 0; i < 17; i++)
      if (runs[static_cast<size_t>(i)] != (i < count ? 1 : 0)) return false;
  }
  return true;
}

}  // namespace

TEST("a pool runs each body of a section once, awake, asleep, and alone") {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    CHECK(runsAll(pool, 200));
    for (int step = 0; step < 20; step++) {
      const ActiveScope active(pool);
      CHECK(runsAll(pool, 100));
    }
    CHECK(runsAll(pool, 50));
  }
}

TEST("an awake pool's other threads take part in a section that lasts") {
  ThreadPool pool(2);
  const ActiveScope active(pool);
  std::atomic<int> inside{0};
  // Each body waits for the other, so one thread alone would never end.
  pool.run(2, [&](int) {
    inside++;
    while (inside < 2) std::this_thread::yield();
  });
  CHECK_EQ(inside.load(), 2);
}

TEST(
    "the first failure of a section is thrown when all of its bodies have ended, and the next section is as any other") {
  ThreadPool pool(2);
  const ActiveScope active(pool);
  for (int round = 0; round < 50; round++) {
    std::atomic<int> ended{0};
    bool thrown = false;
    try {
      pool.run(8, [&](int i) {
        ended++;
        if (i == round % 8) throw std::runtime_error("a body's");
      });
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    CHECK(thrown);
    CHECK_EQ(ended.load(), 8);
    CHECK(runsAll(pool, 17));
  }
}

TEST("of no more bodies than threads each runs on its own thread, and on the caller's when that does not come") {
  ThreadPool pool(3);
  std::vector<std::thread::id> ran(3);
  const auto section = [&](bool together) {
    std::atomic<int> inside{0};
    pool.run(3, [&](int i) {
      ran[static_cast<size_t>(i)] = std::this_thread::get_id();
      inside++;
      while (together && inside < 3) std::this_thread::yield();
    });
  };
  section(false);  // asleep
  for (const std::thread::id& id : ran) CHECK(id == std::this_thread::get_id());
  const ActiveScope active(pool);
  section(true);
  const std::vector<std::thread::id> first = ran;
  CHECK(first[0] == std::this_thread::get_id());
  CHECK(first[1] != first[0] && first[2] != first[0] && first[1] != first[2]);
  for (int round = 0; round < 50; round++) {
    section(true);
    CHECK(ran == first);
  }
}

TEST("threads that wait read ahead to the last byte of a place and no further, and miss no section") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // The page behind it is not readable.
  void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK_EQ(mprotect(static_cast<char*>(memory) + page, page, PROT_NONE), 0);
  const uint8_t* const end = static_cast<const uint8_t*>(memory) + page;
  const Prefetch places[] = {{end - 1500, nullptr, 1500}, {end - 64, end - 1, 1}, {end - 4000, end - 3000, 3000}, {}};
  {
    ThreadPool pool(2);
    const ActiveScope active(pool);
    for (int round = 0; round < 40; round++) {
      for (int thread : {0, 1}) pool.prefetch(thread, &places[(round + thread) % 4]);
      CHECK(runsAll(pool, 17));
      // The other thread is through with its body and waits, then the caller does.
      for (int late : {0, 1}) {
        std::atomic<bool> ended{false};
        pool.run(2, [&](int i) {
          if (i != late) ended = true;
          else
            for (int spin = 0; spin < 2000 || !ended; spin++) std::this_thread::yield();
        });
      }
    }
    for (int thread : {0, 1}) pool.prefetch(thread, nullptr);
    CHECK(runsAll(pool, 17));
  }
  munmap(memory, 2 * page);
}

TEST("a pool of more threads than a word has bits runs sections of a few bodies and of as many as it has threads") {
  ThreadPool pool(70);
  const ActiveScope active(pool);
  for (int round = 0; round < 20; round++)
    for (const int count : {2, 63, 64, 70, 200}) CHECK(runsAll(pool, count));
}
