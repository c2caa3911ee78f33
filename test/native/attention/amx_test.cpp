// The attention kernel over tiles: who computes what, that no tile stays in use, and on a processor with AMX that it does
// what the emulation does. That it equals the reference is in attention_test.cpp, which runs it over emulated tiles.
#include <cstdio>
#include <cstring>

#include "attention/scene.h"
#include "support/check.h"
#include "support/emulated_tiles.h"

using namespace pocket;
using scene::Kernel;
using scene::Plan;
using scene::Scene;

namespace pocket {
#ifdef __x86_64__
void attendEmulatedTiles(const AttendJob& job);
#endif
}  // namespace pocket

namespace {

const Kernel kPairs = Isa::kAvx512Bf16;
constexpr KvType kNarrow[] = {KvType::kF16, KvType::kBf16, KvType::kInt8};

bool hasPairs() { return supportedIsas().back() >= Isa::kAvx512Bf16; }

// Null, with a printed reason, if the processor lacks the instructions that the kernel needs besides tiles.
const Kernel* emulatedTiles(const char* what) {
  if (hasPairs()) return &scene::attentionKernels().back();
  std::printf("skipped: %s, because this processor has no AVX-512 with bf16 and VNNI\n", what);
  return nullptr;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double meanDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); i++) sum += std::fabs(double{a[i]} - double{b[i]});
  return sum / static_cast<double>(a.size());
}

}  // namespace

const std::vector<Kernel>& scene::attentionKernels() {
  static const std::vector<Kernel> all = [] {
    std::vector<Kernel> found;
    for (Isa isa : supportedIsas()) found.push_back(isa);
#ifdef __x86_64__
    if (hasPairs()) found.push_back({"avx512bf16 with emulated tiles", Isa::kAmx, attendEmulatedTiles});
#endif
    return found;
  }();
  return all;
}

TEST(
    "a decode step with all its draft tokens, f32 pages and heads that are no multiple of 32 are not computed in tiles") {
  const Kernel* tiles = emulatedTiles("which rows are computed in tiles");
  if (tiles == nullptr) return;
  const auto pairsCompute = [&](scene::Size size, KvType type, const Plan& plan) {
    Scene scene(size, type, {plan}, 90);
    auto store = scene.freshStore();
    return sameBits(scene.run(*store, *tiles), scene.run(*store, kPairs));
  };
  for (KvType type : kNarrow) {
    CHECK(pairsCompute({14, 2, 64}, type, {300, 1}));
    CHECK(pairsCompute({14, 2, 64}, type, {300, kDecodeRows}));
    CHECK(pairsCompute({32, 1, 64}, type, {300, kDecodeRows}));
    CHECK(!pairsCompute({14, 2, 64}, type, {300, kDecodeRows + 1}));
    CHECK(!pairsCompute({1, 1, 64}, type, {300, kDecodeRows + 1}));
    CHECK(pairsCompute({14, 2, 48}, type, {300, 20}));
  }
  CHECK(pairsCompute({14, 2, 64}, KvType::kF32, {300, 20}));
}

TEST("every number of rows from 18 to 50 gets in tiles what the pair kernel gives it") {
  const Kernel* tiles = emulatedTiles("bands of tiles against the dot2 kernel");
  if (tiles == nullptr) return;
  for (KvType type : kNarrow)
    for (int rows = kDecodeRows + 1; rows <= 50; rows++) {
      Scene scene({1, 1, 32}, type, {{60 + rows, rows, rows % 2 == 0, 1 + rows}}, 200 + rows);
      auto store = scene.freshStore();
      const double difference = meanDifference(scene.run(*store, *tiles), scene.run(*store, kPairs));
      if (!(difference < 1e-3))
        check::fail(__FILE__, __LINE__,
                    std::to_string(rows) + " rows over " + name(type) + ": off by " + std::to_string(difference));
    }
}

TEST("over f16 pages scores in tiles keep what a bf16 alone would lose") {
  const Kernel* tiles = emulatedTiles("the terms of scores over f16 pages");
  if (tiles == nullptr) return;
  // One dimension of the keys far larger than the rest.
  const auto off = [&](KvType type) {
    Scene scene({4, 1, 64}, type, {{300, 30}}, 91);
    scene.outlier = 60;
    for (size_t i = 1; i < scene.k.size(); i += 64) scene.k[i] += scene.outlier;
    auto store = scene.freshStore();
    const std::vector<float> got = scene.run(*store, *tiles);  // and writes what the reference reads
    return meanDifference(got, scene.reference(*store));
  };
  const double f16 = off(KvType::kF16);
  CHECK(f16 < 1e-3);
  CHECK(off(KvType::kBf16) > 3 * f16);
}

TEST("a thread has no tiles left when attention returns") {
  const Kernel* tiles = emulatedTiles("tiles that are left");
  if (tiles == nullptr) return;
  for (KvType type : kNarrow) {
    Scene scene({14, 2, 64}, type, {{200, 40}, {1500, 20}}, 92);
    auto store = scene.freshStore();
    scene.run(*store, *tiles, 1);
    CHECK(!emulated::isEntered());
  }
}

TEST("AMX gives attention the bits of emulated tiles") {
  if (supportedIsas().back() != Isa::kAmx) {
    std::printf(
        "skipped: attention in AMX's tiles against emulated ones, because this processor, system or build has no "
        "AMX\n");
    return;
  }
  for (KvType type : kNarrow) {
    Scene scene({14, 2, 64}, type, {{900, 60, true, 100}, {300, 2}, {1500, 25, false, 200}}, 93);
    auto store = scene.freshStore();
    CHECK(sameBits(scene.run(*store, Isa::kAmx), scene.run(*store, scene::attentionKernels().back())));
  }
}
