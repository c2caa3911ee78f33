// The store's conversions, against arithmetic that is done another way, and its layout, against the drawing in
// kv/store.h.
#include "kv/store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/check.h"

using namespace pocket;

namespace {

constexpr int kDim = 32;

// What a store of one head makes of a key.
std::vector<float> stored(KvType type, const std::vector<float>& key, int64_t slot = 5) {
  const KvShape shape{1, 1, kDim, 16, type};
  KvStore store(shape);
  std::vector<float> back(kDim), value(kDim);
  writeSlot(shape, store.layer(0), 0, slot, key.data(), key.data());
  readSlot(shape, store.layer(0), 0, slot, back.data(), value.data());
  CHECK(std::memcmp(back.data(), value.data(), sizeof(float) * kDim) == 0);
  return back;
}

// Every finite half as a double, by its definition, ascending from zero.
std::vector<double> halfs() {
  std::vector<double> all;
  for (int bits = 0; bits < 0x7c00; bits++) {
    const int exponent = bits >> 10, mantissa = bits & 0x3ff;
    all.push_back(exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
  }
  return all;
}

double nearestHalf(const std::vector<double>& all, double x) {
  const double magnitude = std::fabs(x);
  const auto above = std::lower_bound(all.begin(), all.end(), magnitude);
  double nearest;
  if (above == all.end()) nearest = magnitude < 65520 ? 65504 : INFINITY;
  else if (above == all.begin() || *above == magnitude) nearest = *above;
  else {
    const double up = *above - magnitude, down = magnitude - *(above - 1);
    const bool evenAbove = (above - all.begin()) % 2 == 0;
    nearest = up < down || (up == down && evenAbove) ? *above : *(above - 1);
  }
  return std::copysign(nearest, x);
}

std::vector<float> spread(std::mt19937& random) {
  std::vector<float> key(kDim);
  for (float& x : key) {
    const float mantissa = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    x = std::ldexp(mantissa, static_cast<int>(random() % 46) - 28);
  }
  return key;
}

}  // namespace

TEST("f16 keeps every half as it is") {
  const std::vector<double> all = halfs();
  for (size_t i = 0; i < all.size(); i += kDim) {
    std::vector<float> key;
    for (int d = 0; d < kDim; d++) key.push_back(static_cast<float>(d % 2 == 0 ? all[i + d] : -all[i + d]));
    const std::vector<float> back = stored(KvType::kF16, key);
    CHECK(std::memcmp(back.data(), key.data(), sizeof(float) * kDim) == 0);
  }
}

TEST("f16 rounds to the nearest half, ties to even, and to infinity beyond the largest") {
  const std::vector<double> all = halfs();
  std::mt19937 random(1);
  for (int round = 0; round < 300; round++) {
    const std::vector<float> key = spread(random);
    const std::vector<float> back = stored(KvType::kF16, key);
    for (int d = 0; d < kDim; d++) CHECK_EQ(double{back[d]}, nearestHalf(all, key[d]));
  }
  std::vector<float> ties(kDim);
  for (int base : {0, 1, 2, 1022, 1023, 1024, 1025, 30000, 31742}) {
    const float tie = static_cast<float>((all[base] + all[base + 1]) / 2);
    for (int d = 0; d < kDim; d++) ties[d] = d % 2 == 0 ? tie : -tie;
    const std::vector<float> back = stored(KvType::kF16, ties);
    for (int d = 0; d < kDim; d++) CHECK_EQ(double{back[d]}, nearestHalf(all, ties[d]));
  }
  for (float x : {65504.0f, 65519.99f, 65520.0f, 1e30f, INFINITY, -INFINITY})
    CHECK_EQ(double{stored(KvType::kF16, std::vector<float>(kDim, x))[3]}, nearestHalf(all, x));
}

TEST("bf16 is within half a step of 8 bits, and exact where 8 bits suffice") {
  std::mt19937 random(2);
  for (int round = 0; round < 300; round++) {
    const std::vector<float> key = spread(random);
    const std::vector<float> back = stored(KvType::kBf16, key);
    for (int d = 0; d < kDim; d++) {
      CHECK(std::fabs(back[d] - key[d]) <= std::ldexp(1.0f, std::ilogb(key[d] == 0 ? 1.0f : key[d]) - 8));
      uint32_t bits;
      std::memcpy(&bits, &back[d], sizeof bits);
      CHECK_EQ(bits & 0xffffu, 0u);
    }
    CHECK(stored(KvType::kBf16, back) == back);
  }
  CHECK_EQ(stored(KvType::kBf16, std::vector<float>(kDim, 1.00390625f))[0], 1.0f);      // a tie, to even: down
  CHECK_EQ(stored(KvType::kBf16, std::vector<float>(kDim, 1.01171875f))[0], 1.015625f);  // a tie, to even: up
}

TEST("int8 is within half a step of a 127th of the largest magnitude") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; round++) {
    const std::vector<float> key = spread(random);
    float largest = 0;
    for (float x : key) largest = std::max(largest, std::fabs(x));
    const std::vector<float> back = stored(KvType::kInt8, key);
    for (int d = 0; d < kDim; d++) {
      CHECK_NEAR(back[d], key[d], largest / 254 * 1.0001);
      if (std::fabs(key[d]) == largest) CHECK_NEAR(back[d], key[d], largest * 1e-6);
    }
  }
  CHECK(stored(KvType::kInt8, std::vector<float>(kDim, 0.0f)) == std::vector<float>(kDim, 0.0f));
}

TEST("int8 rounds each pair of a key in steps of its scale, a value in steps of its own largest") {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  const KvShape shape{2, 2, kDim, 16, KvType::kInt8};
  for (int round = 0; round < 100; round++) {
    KvStore store(shape);
    std::vector<float> scales(2 * kDim / 2), key(kDim), value(kDim), backKey(kDim), backValue(kDim);
    for (float& scale : scales) scale = std::exp(2 * normal(random));
    store.setPairScales(1, scales);
    for (float& x : value) x = normal(random);
    float reach = 0, largest = 0;
    for (int d = 0; d < kDim; d++) {
      const float scale = scales[16 + d % 16];
      key[d] = scale * normal(random);
      reach = std::max(reach, std::fabs(key[d]) / scale), largest = std::max(largest, std::fabs(value[d]));
    }
    writeSlot(shape, store.layer(1), 1, 3, key.data(), value.data());
    readSlot(shape, store.layer(1), 1, 3, backKey.data(), backValue.data());
    for (int d = 0; d < kDim; d++) {
      CHECK_NEAR(backKey[d], key[d], scales[16 + d % 16] * reach / 254 * 1.0001);
      CHECK_NEAR(backValue[d], value[d], largest / 254 * 1.0001);
    }
    CHECK(store.read(1, {3}, true)[kDim] == backKey[0]);
  }
}

TEST("pair scales that are missing, not finite or not above 0 are refused, of every type") {
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    KvStore store({2, 2, kDim, 16, type});
    const std::vector<float> sound(kDim, 2.0f);
    store.setPairScales(1, sound);
    CHECK_THROWS_CODE(store.setPairScales(2, sound), "BAD_ARGUMENT");
    CHECK_THROWS_CODE(store.setPairScales(-1, sound), "BAD_ARGUMENT");
    CHECK_THROWS_CODE(store.setPairScales(0, std::vector<float>(kDim - 1, 2.0f)), "BAD_ARGUMENT");
    for (float wrong : {0.0f, -1.0f, INFINITY, NAN}) {
      std::vector<float> scales = sound;
      scales[7] = wrong;
      CHECK_THROWS_CODE(store.setPairScales(0, scales), "BAD_ARGUMENT");
    }
  }
}

TEST("not-a-number stays one in f32, f16 and bf16, and does not trap in int8") {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16})
    CHECK(std::isnan(stored(type, std::vector<float>(kDim, NAN))[1]));
  std::vector<float> key(kDim, 1.0f);
  key[4] = NAN;
  CHECK_NEAR(stored(KvType::kInt8, key)[5], 1.0f, 1e-6);
}

TEST("keys lie transposed in their tile and values row by row, bf16 in pairs") {
  const KvShape plain{2, 2, kDim, 48, KvType::kF32}, paired{2, 2, kDim, 48, KvType::kBf16};
  KvStore floats(plain), pairs(paired);
  std::vector<float> key(kDim), value(kDim);
  for (int d = 0; d < kDim; d++) key[d] = 1.0f + d, value[d] = 64.0f + d;
  const int head = 1, slot = 37, tile = 2, lane = 5;
  writeSlot(plain, floats.layer(1), head, slot, key.data(), value.data());
  writeSlot(paired, pairs.layer(1), head, slot, key.data(), value.data());
  const int base = (head * 3 + tile) * 16 * kDim;
  const auto bf16 = [](const void* side, int at) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(side)[at]) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  };
  for (int d = 0; d < kDim; d++) {
    CHECK_EQ(static_cast<const float*>(floats.layer(1).keys)[base + d * 16 + lane], key[d]);
    CHECK_EQ(static_cast<const float*>(floats.layer(1).values)[base + lane * kDim + d], value[d]);
    CHECK_EQ(bf16(pairs.layer(1).keys, base + ((d / 2) * 16 + lane) * 2 + d % 2), key[d]);
    CHECK_EQ(bf16(pairs.layer(1).values, base + ((lane / 2) * kDim + d) * 2 + lane % 2), value[d]);
  }
}

TEST("layers, heads and sides do not overlap and fill the store to its last byte") {
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8}) {
    const KvShape shape{3, 2, kDim, 32, type};
    KvStore store(shape);
    CHECK_EQ(store.bytes(), 2u * 3 * 2 * 32 * (kDim * bytesPerElement(type) + (type == KvType::kInt8 ? 4 : 0)));
    // Every slot gets numbers of its own (of three bits, which every type but int8 holds exactly).
    const auto number = [](int layer, int head, int slot, int d, int side) {
      return 1.0f + static_cast<float>((layer * 131 + head * 37 + slot * 11 + d * 3 + side) % 7);
    };
    std::vector<float> key(kDim), value(kDim);
    for (int pass = 0; pass < 2; pass++)
      for (int layer = 0; layer < 3; layer++)
        for (int head = 0; head < 2; head++)
          for (int slot = 0; slot < 32; slot++) {
            if (pass == 0) {
              for (int d = 0; d < kDim; d++) {
                key[d] = number(layer, head, slot, d, 0);
                value[d] = number(layer, head, slot, d, 1);
              }
              writeSlot(shape, store.layer(layer), head, slot, key.data(), value.data());
              continue;
            }
            readSlot(shape, store.layer(layer), head, slot, key.data(), value.data());
            for (int d = 0; d < kDim; d++) {
              CHECK_NEAR(key[d], number(layer, head, slot, d, 0), type == KvType::kInt8 ? 0.03 : 0);
              CHECK_NEAR(value[d], number(layer, head, slot, d, 1), type == KvType::kInt8 ? 0.03 : 0);
            }
          }
  }
}

TEST("a store that cannot be had is refused with its size, a shape that makes no sense as well") {
  CHECK_THROWS_CODE(KvStore({24, 2, 64, int64_t{1} << 42, KvType::kF16}), "OUT_OF_MEMORY");
  CHECK_THROWS_CODE(KvStore({24, 2, 64, int64_t{1} << 60, KvType::kF32}), "OUT_OF_MEMORY");
  CHECK_THROWS_CODE(KvStore({0, 2, 64, 16, KvType::kF16}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(KvStore({1, 2, 24, 16, KvType::kF16}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(KvStore({1, 2, 64, 24, KvType::kF16}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(KvStore({1, 2, 64, 0, KvType::kF16}), "BAD_ARGUMENT");
}
