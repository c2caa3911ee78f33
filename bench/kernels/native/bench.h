// What the programs of this folder share: the words they are run with, reading memory, a timing.
// Measures nothing by itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace pocket {

// `--json`, and the words that choose rows.
struct Words {
  bool json = false;
  std::vector<std::string> words;

  Words(int count, char** arguments) {
    for (int i = 1; i < count; i++)
      if (std::strcmp(arguments[i], "--json") == 0) json = true;
      else words.push_back(arguments[i]);
  }

  // Whether the row's name contains all of the words, which are separated by spaces.
  bool choose(const std::string& row) const {
    const std::string spaced = " " + row + " ";
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& word) { return spaced.find(" " + word + " ") != std::string::npos; });
  }
};

// Seconds; the median is the value in the middle of the sorted ones.
struct Timing {
  double best, median;
};

inline Timing timingOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

// Reads `count` words, a multiple of 16, as plainly as can be: sixteen sums, so that no addition waits for another.
inline uint64_t sumOf(const uint64_t* words, size_t count) {
  constexpr size_t kLanes = 16;
  uint64_t lanes[kLanes] = {};
  for (size_t i = 0; i + kLanes <= count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; lane++) lanes[lane] += words[i + lane];
  uint64_t total = 0;
  for (uint64_t lane : lanes) total += lane;
  return total;
}

}  // namespace pocket
