// Threads that stay, with many short sections: what is run, how often, and what comes back of a failure.
#include "team.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include "check.h"

using pocket::Awake;
using pocket::Team;

namespace {

// Whether every body of many sections of different sizes ran once, and what it wrote is there when the section ends.
bool runsAll(Team& team, int sections) {
  std::vector<int> runs(17);
  for (int s = 0; s < sections; s++) {
    const int count = s % 17 + 1;
    runs.assign(runs.size(), 0);
    team.run(count, [&](int i) { runs[static_cast<size_t>(i)]++; });
    for (int i = 0; i < 17; i++)
      if (runs[static_cast<size_t>(i)] != (i < count ? 1 : 0)) return false;
  }
  return true;
}

}  // namespace

TEST("a team runs each body of a section once, awake, asleep, and alone") {
  for (int threads : {1, 2, 3, 5}) {
    Team team(threads);
    CHECK(runsAll(team, 200));
    for (int step = 0; step < 20; step++) {
      const Awake awake(team);
      CHECK(runsAll(team, 100));
    }
    CHECK(runsAll(team, 50));
  }
}

TEST("an awake team's other threads take part in a section that lasts") {
  Team team(2);
  const Awake awake(team);
  std::atomic<int> inside{0};
  // Each body waits for the other, so one thread alone would never end.
  team.run(2, [&](int) {
    inside++;
    while (inside < 2) std::this_thread::yield();
  });
  CHECK_EQ(inside.load(), 2);
}

TEST("the first failure of a section is thrown when all of its bodies have ended, and the next section is as any other") {
  Team team(2);
  const Awake awake(team);
  for (int round = 0; round < 50; round++) {
    std::atomic<int> ended{0};
    bool thrown = false;
    try {
      team.run(8, [&](int i) {
        ended++;
        if (i == round % 8) throw std::runtime_error("a body's");
      });
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    CHECK(thrown);
    CHECK_EQ(ended.load(), 8);
    CHECK(runsAll(team, 17));
  }
}
