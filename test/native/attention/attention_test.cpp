// The attention kernels against three plain loops in double over the same store, so that what is compared is
// arithmetic and not the rounding of keys and values. Every instruction set that this machine has, tiles
// also emulated, every type.
#include "attention/scene.h"
#include "support/check.h"

using namespace pocket;
using scene::attentionKernels;
using scene::Kernel;
using scene::Plan;
using scene::Scene;
using scene::Size;

namespace {

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8};

// Of results around 1. Rounded to bf16, 8 bits, are: over bf16 pages the queries and the weights, so that a score of
// deviation 1 is off by some 2^-9; over f16 pages the weights and the values. Over int8 pages all is kept to 15 bits,
// and what is left is the cubic in the exponential; but in tiles the weights are rounded there too.
struct Bound {
  double largest, mean;
};
Bound boundOf(Isa isa, KvType type) {
  if (isa < Isa::kAvx512Bf16 || type == KvType::kF32) return {1e-5, 1e-6};
  if (type == KvType::kBf16) return {2e-2, 1e-3};
  return type == KvType::kF16 || isa == Isa::kAmx ? Bound{1e-2, 7e-4} : Bound{1e-3, 1e-4};
}

std::string label(const Kernel& kernel, KvType type) { return kernel.name + " " + name(type); }

void checkClose(const std::vector<float>& got, const std::vector<float>& wanted, Bound bound, const std::string& what) {
  double largest = 0, sum = 0;
  bool finite = true;
  for (size_t i = 0; i < got.size(); i++) {
    const double difference = std::fabs(double{got[i]} - double{wanted[i]});
    if (!std::isfinite(got[i])) finite = false;
    largest = std::max(largest, difference);
    sum += difference;
  }
  if (!finite) check::fail(__FILE__, __LINE__, what + ": not finite");
  if (!(largest <= bound.largest)) check::fail(__FILE__, __LINE__, what + ": off by " + std::to_string(largest));
  if (!(sum <= bound.mean * static_cast<double>(got.size())))
    check::fail(__FILE__, __LINE__, what + ": off by " + std::to_string(sum) + " over " + std::to_string(got.size()));
}

void checkAgainstReference(Size size, const std::vector<Plan>& plans, unsigned seed) {
  for (KvType type : kTypes) {
    Scene scene(size, type, plans, seed);
    if (type == KvType::kInt8 && seed % 2 == 0) scene.drawPairScales();
    std::vector<float> wanted;
    std::unique_ptr<KvStore> first;
    for (const Kernel& kernel : attentionKernels()) {
      auto store = scene.freshStore();
      const std::vector<float> got = scene.run(*store, kernel);
      if (first == nullptr) {
        wanted = scene.reference(*store);
        first = std::move(store);
      } else {
        CHECK(std::memcmp(first->layer(0).keys, store->layer(0).keys, store->bytes()) == 0);
      }
      checkClose(got, wanted, boundOf(kernel.isa, type), label(kernel, type) + " seed " + std::to_string(seed));
    }
  }
}

// A store of the scene with the rows of its batch written too.
std::unique_ptr<KvStore> withRows(Scene& scene) {
  auto store = scene.freshStore();
  scene.run(*store, Isa::kPortable);
  return store;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// That row `row` of sequence `s`, which is row `at` of the batch, has the bits it has in `all` when it is computed alone.
void checkAlone(const Scene& together, KvStore& store, const Kernel& kernel, size_t s, size_t at, int row,
                const std::vector<float>& all) {
  Scene alone = together;
  alone.sequences = {together.sequences[s]};
  alone.sequences[0].rows = {together.sequences[s].rows[row]};
  alone.packBatch();
  const size_t query = size_t(alone.shape.heads) * alone.shape.headDim;
  const size_t key = size_t(alone.shape.kvHeads) * alone.shape.headDim;
  const auto part = [&](const std::vector<float>& from, size_t width) {
    return std::vector<float>(from.begin() + at * width, from.begin() + (at + 1) * width);
  };
  alone.q = part(together.q, query);
  alone.k = part(together.k, key);
  alone.v = part(together.v, key);
  if (!sameBits(alone.run(store, kernel), part(all, query)))
    check::fail(
        __FILE__, __LINE__,
        label(kernel, store.shape().type) + ": row " + std::to_string(row) + " of sequence " + std::to_string(s));
}

}  // namespace

TEST("every instruction set and type equals the reference for 7 heads a group of 64") {
  checkAgainstReference({14, 2, 64}, {{120, 1}, {90, 20}, {33, 5, true}}, 1);
}

TEST("every instruction set and type equals the reference for 1, 2 and 3 heads a group") {
  checkAgainstReference({3, 3, 64}, {{70, 9, true}, {40, 2}}, 2);
  checkAgainstReference({4, 2, 32}, {{70, 9, true}, {40, 2}}, 3);
  checkAgainstReference({9, 3, 64}, {{70, 9, true}, {40, 40}}, 4);
}

TEST("every instruction set and type equals the reference for head sizes 16, 48, 80, 128 and 256") {
  for (int headDim : {16, 48, 80, 128, 256})
    checkAgainstReference({6, 2, headDim}, {{80, 11, true, 25}, {50, 1}}, 10 + headDim);
}

TEST("chunks of 1 to 70 rows, several sequences in a batch, equal the reference") {
  checkAgainstReference({7, 1, 16}, {{71, 1}, {75, 3}, {80, 19}, {100, 37}, {140, 70}, {60, 60}}, 20);
}

TEST("long histories, cut into ranges that are merged, equal the reference") {
  checkAgainstReference({7, 1, 16}, {{2100, 1, false, 300}, {1500, 4, false, 300}, {1300, 3, true, 300}}, 30);
  checkAgainstReference({3, 1, 32}, {{1400, 1, false, 20}, {1100, 50, true, 60}}, 31);
}

TEST("an edit far in front of the last row equals the reference, also among other sequences") {
  checkAgainstReference({14, 2, 64}, {{2500, 41, false, 300, 64}, {90, 3}}, 32);
  checkAgainstReference({7, 1, 16}, {{1400, 2, false, 60, 0}, {1300, 30, false, 60, 1200}}, 33);
}

TEST("stretches of one token in random slots with a delta each equal the reference") {
  checkAgainstReference({7, 1, 32}, {{150, 1, false, 1}, {90, 30, true, 1}, {60, 7, false, 2}}, 40);
}

TEST("random batches equal the reference") {
  std::mt19937 random(99);
  for (unsigned seed = 100; seed < 110; seed++) {
    const int kvHeads = 1 + static_cast<int>(random() % 3), group = 1 + static_cast<int>(random() % 8);
    std::vector<Plan> plans(1 + random() % 4);
    for (Plan& plan : plans) {
      plan.cells = 1 + static_cast<int>(random() % 120);
      plan.rows = 1 + static_cast<int>(random() % std::min(plan.cells, 40));
      plan.scattered = random() % 2 == 0;
      plan.longestRun = 1 + static_cast<int>(random() % 60);
    }
    checkAgainstReference({kvHeads * group, kvHeads, 16 * (1 + static_cast<int>(random() % 5))}, plans, seed);
  }
}

TEST("scores of thousands neither overflow nor lose the order") {
  Scene scene({4, 2, 64}, KvType::kF32, {{200, 12}}, 50, 2000);
  auto store = scene.freshStore();
  for (const Kernel& kernel : attentionKernels()) {
    const std::vector<float> got = scene.run(*store, kernel);
    checkClose(got, scene.reference(*store), {2e-2, 1e-3}, kernel.name);
  }
}

TEST("keys with one dimension far larger than the rest keep their scores over f16 and int8 pages") {
  // Scores of deviation 7: a key rounded to 8 bits would move them by hundredths.
  for (KvType type : {KvType::kF16, KvType::kInt8}) {
    Scene scene({14, 2, 64}, type, {{400, 20}, {300, 1}}, 55);
    scene.outlier = 60;
    for (size_t i = 1; i < scene.k.size(); i += 64) scene.k[i] += scene.outlier;
    auto store = scene.freshStore();
    for (const Kernel& kernel : attentionKernels()) {
      const bool rounds = boundOf(kernel.isa, type).largest > 2e-3;
      const std::vector<float> got = scene.run(*store, kernel);
      checkClose(got, scene.reference(*store), rounds ? Bound{2e-2, 2e-3} : Bound{2e-3, 1e-4}, label(kernel, type));
    }
  }
}

TEST("a key with one huge pair keeps its small pairs over int8 pages, if that pair has a scale") {
  const auto distance = [](bool scaled, const Kernel& kernel) {
    Scene scene({14, 2, 64}, KvType::kF32, {{400, 20}, {300, 1}}, 58);
    scene.outlier = 300;
    for (size_t i = 1; i < scene.k.size(); i += 64) scene.k[i] += scene.outlier;
    for (size_t i = 0; i < scene.q.size(); i += 32) scene.q[i + 1] = 0;  // what the huge pair says is of no interest
    const std::vector<float> wanted = scene.reference(*withRows(scene));
    scene.store.type = KvType::kInt8;
    if (scaled) {
      scene.pairScales.assign(64, 3.0f);
      for (size_t i = 1; i < scene.pairScales.size(); i += 32) scene.pairScales[i] = 300.0f;
    }
    const std::vector<float> got = scene.run(*scene.freshStore(), kernel);
    double sum = 0;
    for (size_t i = 0; i < got.size(); i++) sum += std::fabs(double{got[i]} - double{wanted[i]});
    return sum / static_cast<double>(got.size());
  };
  for (const Kernel& kernel : attentionKernels()) {
    const double without = distance(false, kernel), with = distance(true, kernel);
    if (!(without > 0.03)) check::fail(__FILE__, __LINE__, kernel.name + " without: " + std::to_string(without));
    if (!(with < 0.004)) check::fail(__FILE__, __LINE__, kernel.name + " with: " + std::to_string(with));
  }
}

TEST("pair scales change no bit over other pages than int8") {
  for (KvType type : kTypes) {
    Scene scaled({4, 2, 32}, type, {{100, 30, true}, {60, 9}}, 59);
    scaled.drawPairScales();
    Scene plain = scaled;
    plain.pairScales.clear();
    auto storePlain = plain.freshStore(), storeScaled = scaled.freshStore();
    for (const Kernel& kernel : attentionKernels()) {
      const bool same = sameBits(plain.run(*storePlain, kernel), scaled.run(*storeScaled, kernel));
      const void *keys = storePlain->layer(0).keys, *scaledKeys = storeScaled->layer(0).keys;
      const bool sameCells = std::memcmp(keys, scaledKeys, storePlain->bytes()) == 0;
      CHECK_EQ(same && sameCells, type != KvType::kInt8);
    }
  }
}

TEST("the longest sum of products that keys and a query can have keeps its sign") {
  for (int headDim : {16, 32, 64, 256})
    for (KvType type : kTypes) {
      Scene scene({1, 1, headDim}, type, {{3, 1}}, 57);
      scene.sequences[0].cells = {{0, 0}, {1, 1}, {2, 2}};
      scene.packBatch();
      auto store = scene.freshStore();
      const int half = headDim / 2;
      const float* turn = scene.rope.row(2);
      for (int d = 0; d < half; d++) {  // once rotated, all of them are 1
        scene.q[d] = turn[d] + turn[half + d];
        scene.q[half + d] = turn[d] - turn[half + d];
      }
      for (int slot : {0, 1}) {
        const std::vector<float> key(headDim, slot == 0 ? 1.0f : -1.0f), value(headDim, slot == 0 ? 1.0f : 2.0f);
        writeSlot(scene.store, store->layer(1), 0, slot, key.data(), value.data());
      }
      for (Isa isa : supportedIsas()) {
        const std::vector<float> got = scene.run(*store, isa);
        checkClose(got, scene.reference(*store), boundOf(isa, type), label(isa, type) + " " + std::to_string(headDim));
      }
    }
}

TEST("a row that looks at thousands of cells alike gets their mean") {
  for (KvType type : kTypes) {
    Scene scene({7, 1, 64}, type, {{2500, 1, false, 300}, {1800, 30, false, 300}}, 56, 0);
    auto store = scene.freshStore();
    for (const Kernel& kernel : attentionKernels()) {
      const std::vector<float> got = scene.run(*store, kernel);
      // Over int8 pages tiles round each weight times its value's scale: 2^-10 over the root of the number of cells.
      const double mean = type == KvType::kInt8 && kernel.isa == Isa::kAmx ? 4e-5 : 3e-5;
      checkClose(got, scene.reference(*store), {2e-4, mean}, label(kernel, type));
    }
  }
}

TEST("a row that sees one cell gets exactly its value") {
  for (const Kernel& kernel : attentionKernels()) {
    Scene scene({3, 1, 48}, KvType::kF32, {{5, 5}}, 60);
    auto store = scene.freshStore();
    const std::vector<float> got = scene.run(*store, kernel);
    for (int h = 0; h < 3; h++) CHECK(std::memcmp(&got[h * 48], scene.v.data(), 48 * sizeof(float)) == 0);
  }
}

TEST("a moved key scores as a key computed at its new position") {
  for (int move : {-3000, -17, -1, 1, 16, 1234}) {
    // The same unrotated keys: written where they stand, and written `move` away and shifted.
    Scene there({14, 2, 64}, KvType::kF32, {{1400, 4}}, 70);
    for (int i = 0; i < 1400; i++) there.sequences[0].cells[i] = {8 + i, i};
    Scene moved = there;
    for (int i = 1250; i < 1390; i++) moved.sequences[0].cells[i].birth = i - move;
    there.packBatch();
    moved.packBatch();
    CHECK_EQ(moved.batch.stretches.size(), 3);
    auto storeThere = there.freshStore(), storeMoved = moved.freshStore();
    for (const Kernel& kernel : attentionKernels())
      checkClose(moved.run(*storeMoved, kernel), there.run(*storeThere, kernel), {1e-5, 1e-6},
                 kernel.name + " moved by " + std::to_string(move));
  }
}

TEST("the same batch gives the same bits on one thread and on two, and run again") {
  for (KvType type : kTypes)
    for (const Kernel& kernel : attentionKernels()) {
      Scene scene({14, 2, 64}, type, {{1500, 1, false, 200}, {300, 40}, {1200, 2, true, 200}}, 80);
      auto store = scene.freshStore();
      const std::vector<float> once = scene.run(*store, kernel, 1);
      CHECK(sameBits(once, scene.run(*store, kernel, 2)));
      CHECK(sameBits(once, scene.run(*store, kernel, 2)));
    }
}

TEST("a row's bits do not depend on its neighbours in the batch") {
  for (const Kernel& kernel : attentionKernels()) {
    Scene together({6, 2, 32}, KvType::kF16, {{1300, 2, false, 200}, {90, 33}, {40, 1}}, 81);
    auto store = together.freshStore();
    const std::vector<float> all = together.run(*store, kernel);
    const int rowFloats = 6 * 32;
    for (size_t e = 0, firstRow = 0; e < 3; e++) {
      Scene alone = together;
      alone.sequences = {together.sequences[e]};
      alone.packBatch();
      const size_t rows = alone.batch.rows.size();
      alone.q.assign(&together.q[firstRow * rowFloats], &together.q[firstRow * rowFloats] + rows * rowFloats);
      alone.k.assign(&together.k[firstRow * 64], &together.k[firstRow * 64] + rows * 64);
      alone.v.assign(&together.v[firstRow * 64], &together.v[firstRow * 64] + rows * 64);
      CHECK(sameBits(alone.run(*store, kernel),
                     {all.begin() + firstRow * rowFloats, all.begin() + (firstRow + rows) * rowFloats}));
      firstRow += rows;
    }
  }
}

TEST("a row has the same bits alone, with draft tokens behind it and among other sequences, over pages of every type") {
  for (const scene::Size size : {scene::Size{14, 2, 64}, scene::Size{3, 3, 32}, scene::Size{18, 1, 16}})
    for (KvType type : kTypes)
      for (const Kernel& kernel : attentionKernels()) {
        // The first sequence lies in one piece, so that its rows stand on both sides of the end of a range; the second
        // in stretches of several deltas, over the end of a range and from its first cell on.
        Scene together(size, type,
                       {{1024 + 8, kDecodeRows}, {1100, kDecodeRows, false, 70}, {kDecodeRows, kDecodeRows}}, 86);
        for (int i = 0; i < 1024 + 8; i++) together.sequences[0].cells[i] = {i, i};
        for (scene::Cell& cell : together.sequences[1].cells) cell.slot += 1040;
        for (scene::Cell& cell : together.sequences[2].cells) cell.slot += 1040;
        together.packBatch();
        auto store = together.freshStore();
        const std::vector<float> all = together.run(*store, kernel);
        for (size_t s = 0, first = 0; s < 3; s++, first += kDecodeRows)
          for (const int row : {0, 7, 8, kDecodeRows - 1})
            checkAlone(together, *store, kernel, s, first + row, row, all);
      }
}

TEST("(5) writing touches the slots of the rows and no other byte") {
  for (KvType type : kTypes) {
    Scene scene({4, 2, 32}, type, {{100, 30, true}, {60, 1}}, 82);
    auto before = scene.freshStore(), after = scene.freshStore();
    scene.run(*after, attentionKernels().back());
    const std::vector<float> zero(32, 0.0f);
    size_t changed = 0;
    const auto* a = static_cast<const uint8_t*>(before->layer(0).keys);
    const auto* b = static_cast<const uint8_t*>(after->layer(0).keys);
    for (size_t i = 0; i < after->bytes(); i++) changed += a[i] != b[i];
    CHECK(changed > 0);
    for (const Row& row : scene.batch.rows)
      for (int h = 0; h < 2; h++)
        for (KvStore* store : {before.get(), after.get()})
          writeSlot(scene.store, store->layer(1), h, row.slot, zero.data(), zero.data());
    CHECK(std::memcmp(a, b, after->bytes()) == 0);
  }
}

TEST("a key is written rotated for its own index, a value as it is") {
  Scene scene({4, 2, 32}, KvType::kF32, {{100, 30, true}}, 83);
  auto store = scene.freshStore();
  scene.run(*store, attentionKernels().front());
  std::vector<float> key(32), value(32);
  for (size_t r = 0; r < scene.batch.rows.size(); r++)
    for (int h = 0; h < 2; h++) {
      readSlot(scene.store, store->layer(1), h, scene.batch.rows[r].slot, key.data(), value.data());
      const float* k = &scene.k[(r * 2 + h) * 32];
      for (int d = 0; d < 16; d++) {
        const double angle = scene.batch.rows[r].index * std::pow(1e6, -2.0 * d / 32);
        CHECK_NEAR(key[d], k[d] * std::cos(angle) - k[16 + d] * std::sin(angle), 1e-6);
        CHECK_NEAR(key[16 + d], k[16 + d] * std::cos(angle) + k[d] * std::sin(angle), 1e-6);
      }
      CHECK(std::memcmp(value.data(), &scene.v[(r * 2 + h) * 32], sizeof(float) * 32) == 0);
    }
}

TEST("a query that is not a number spoils its own head and nothing else") {
  for (KvType type : kTypes)
    for (const Kernel& kernel : attentionKernels()) {
      Scene scene({4, 2, 32}, type, {{60, 6}}, 84);
      auto store = scene.freshStore();
      const std::vector<float> sound = scene.run(*store, kernel);
      scene.q[(3 * 4 + 1) * 32 + 5] = NAN;  // row 3, head 1
      const std::vector<float> got = scene.run(*store, kernel);
      for (size_t i = 0; i < got.size(); i++) {
        if (i / 32 == 3 * 4 + 1) CHECK(std::isnan(got[i]));
        else CHECK_EQ(got[i], sound[i]);
      }
    }
}

TEST("a batch that breaks its contract is refused before anything is written") {
  Scene scene({4, 2, 32}, KvType::kF16, {{60, 6}}, 85);
  const auto attention = makeAttention(scene.shape, scene.store, scene.rope, Isa::kPortable, 1);
  auto store = scene.freshStore(), untouched = scene.freshStore();
  std::vector<float> out(scene.q.size());
  const auto refused = [&](const std::function<void(Batch&)>& spoil) {
    Batch batch = scene.batch;
    spoil(batch);
    CHECK_THROWS_CODE(attention->run(batch, scene.input(out), store->layer(1), Scene::inOrder()), "BAD_ARGUMENT");
  };
  refused([&](Batch& b) { b.rows[2].slot = static_cast<int32_t>(scene.store.slots); });
  refused([](Batch& b) { b.rows[2].slot = -1; });
  refused([](Batch& b) { b.rows[2].index = b.rows[3].index; });
  refused([](Batch& b) { b.rows.back().index = 60; });
  refused([](Batch& b) { b.rows.back().index = 2 * Scene::kContext; });
  refused([](Batch& b) { b.stretches[0].index = 1; });
  refused([](Batch& b) { b.stretches.back().delta = 4000; });
  refused([](Batch& b) { b.stretches.back().delta = -2 * Scene::kContext; });
  refused([](Batch& b) { b.stretches[0].count = 0; });
  refused([](Batch& b) { b.stretches[0].count = INT32_MAX; });
  refused([](Batch& b) { b.entries[0].rowCount = 7; });
  refused([](Batch& b) { b.entries[0].rowCount = 0; });
  refused([](Batch& b) { b.entries[0].stretchCount++; });
  CHECK(std::memcmp(store->layer(0).keys, untouched->layer(0).keys, store->bytes()) == 0);
}

TEST("shapes that no kernel serves are refused") {
  const Rope rope(64, 64, 1e4);
  const KvShape store{1, 2, 64, 64, KvType::kF16};
  const auto made = [&](AttentionShape shape, KvShape kv, int threads) {
    return makeAttention(shape, kv, rope, Isa::kPortable, threads);
  };
  CHECK(made({14, 2, 64, 1}, store, 2) != nullptr);
  CHECK_THROWS_CODE(made({13, 2, 64, 1}, store, 2), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(made({14, 2, 72, 1}, store, 2), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(made({14, 2, 272, 1}, {1, 2, 272, 64, KvType::kF16}, 2), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(made({14, 2, 32, 1}, store, 2), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(made({14, 2, 64, 1}, store, 0), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(makeAttention({14, 2, 64, 1}, store, rope, static_cast<Isa>(77), 2), "BAD_ARGUMENT");
}

TEST("the portable kernel is always among those supported, and none twice") {
  const std::vector<Isa> isas = supportedIsas();
  CHECK(isas.front() == Isa::kPortable);
  for (size_t i = 1; i < isas.size(); i++) CHECK(isas[i - 1] < isas[i]);
}
