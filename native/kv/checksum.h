// A 64-bit checksum of bytes against damage, not against attackers: four lanes of 64-bit words, each step a
// bijection of lane and word, so that no change confined to one word goes unseen. `seed` tells sections of a
// file apart, so that two of them cannot change places. Little-endian machines only, as the files are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pocket {

inline uint64_t checksum(const void* data, size_t bytes, uint64_t seed) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u, kOther = 0xd6e8feb86659fd93u;
  const auto rotateLeft = [](uint64_t x, int by) { return x << by | x >> (64 - by); };
  const uint8_t* from = static_cast<const uint8_t*>(data);
  uint64_t lanes[4] = {seed + kOdd, seed ^ kOther, seed * kOdd + 1, ~seed};
  const auto take = [&](int lane, const uint8_t* at, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, at, count);
    lanes[lane] = rotateLeft(lanes[lane] ^ word, 29) * kOdd;
  };
  size_t done = 0;
  for (; done + 32 <= bytes; done += 32) {
    for (int lane = 0; lane < 4; lane++) take(lane, from + done + 8 * lane, 8);
  }
  for (int lane = 0; done < bytes; done += 8, lane++) take(lane, from + done, bytes - done < 8 ? bytes - done : 8);
  uint64_t sum = static_cast<uint64_t>(bytes) * kOther;
  for (int lane = 0; lane < 4; lane++) sum = rotateLeft(sum, 17) + lanes[lane];
  // Every bit of the sum moves about half of the result's.
  sum = (sum ^ sum >> 32) * kOther;
  sum = (sum ^ sum >> 29) * kOdd;
  return sum ^ sum >> 32;
}

}  // namespace pocket
