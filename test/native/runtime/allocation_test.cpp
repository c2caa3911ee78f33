// What a step may not do: ask for memory once its scratch has grown. Counts every `new` of the process while a warm
// attention pass, linear layer or sampler runs, on whatever thread. Knows nothing of ONNX Runtime, whose arena is its own.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "attention/scene.h"
#include "linear/scene.h"
#include "runtime/profiler.h"
#include "runtime/thread_pool.h"
#include "sampler/row.h"
#include "support/check.h"

namespace {

std::atomic<long> news{0};

void* counted(std::size_t bytes) {
  news++;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

void* countedAligned(std::size_t bytes, std::align_val_t alignment) {
  news++;
  const std::size_t step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step) / step * step)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return countedAligned(bytes, alignment); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return countedAligned(bytes, alignment); }
// All forms together: one that stayed the library's would meet our delete.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  news++;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept { return operator new(bytes, tag); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

using namespace pocket;

namespace {

template <class Body>
long newsDuring(const Body& body) {
  const long before = news;
  body();
  return news - before;
}

// A pass gives two loops to the thread pool, each as a std::function, which may allocate
// for what its body refers to. Nothing that grows with rows, cells or heads is among them.
constexpr long kLoops = 2;

// Prefill and decode in one step, some of it over cells scattered to runs of one, as after many edits.
const std::vector<scene::Plan> kPlans = {{900, 130, false, 60}, {700, 1, false, 200}, {90, 3, true, 1}};

}  // namespace

TEST("the counter counts: a vector that grows asks for memory, one that shrinks does not") {
  std::vector<int> numbers;
  CHECK(newsDuring([&] { numbers.resize(1000); }) > 0);
  CHECK_EQ(newsDuring([&] { numbers.resize(500); }), 0);
}

TEST("a warm attention pass asks for no memory beyond its three loops, on every instruction set") {
  for (const Isa isa : supportedIsas())
    for (const KvType type : {KvType::kF16, KvType::kInt8}) {
      scene::Scene scene({4, 2, 64}, type, kPlans, 17);
      const auto store = scene.freshStore();
      const auto attention = makeAttention(scene.shape, scene.store, scene.rope, isa, 2);
      std::vector<float> out(scene.q.size());
      const ParallelFor inOrder = scene::Scene::inOrder();
      const auto pass = [&] { attention->run(scene.batch, scene.input(out), store->layer(1), inOrder); };
      CHECK(newsDuring(pass) > kLoops);  // the first one finds no scratch
      CHECK(newsDuring(pass) <= kLoops);
      // A smaller step afterwards: decode of the last sequences alone.
      scene.sequences.erase(scene.sequences.begin());
      scene.packBatch();
      CHECK(newsDuring(pass) <= kLoops);
    }
}

TEST("warm linear layers ask for no memory, with many rows, few or none, whatever the activations") {
  const scene::Layer gate(BlockFormat::kQ4_K, 40, 512, 5), up(BlockFormat::kQ6_K, 40, 512, 6);
  std::mt19937 random(7);
  const std::vector<float> x = scene::randomRows(70, 512, random);
  std::vector<float> out(70 * 40), other(70 * 40);
  const LinearOutput outputs[] = {{gate.weight(), gate.bias.data(), out.data()}, {up.weight(), nullptr, other.data()}};
  const ParallelFor inOrder = scene::oneThread();
  for (const Isa isa : supportedIsas())
    for (const Activations activations : {Activations::kInt8, Activations::kF32}) {
      const auto linear = makeLinear(isa, 2);
      const auto run = [&](int rows, Combine combine) {
        return newsDuring([&] { linear->run(x.data(), rows, outputs, 2, combine, activations, inOrder); });
      };
      CHECK(run(70, Combine::kSwiGlu) > 0);  // the first one finds no scratch
      run(70, Combine::kNone);
      for (const int rows : {70, 3, 1, 0})
        for (const Combine combine : {Combine::kSwiGlu, Combine::kNone}) CHECK_EQ(run(rows, combine), 0);
    }
}

TEST("a pool, awake or not, asks for no memory") {
  ThreadPool pool(2);
  std::atomic<int> ran{0};
  const auto body = [&](int) { ran++; };
  const std::function<void(int)> held = std::cref(body);
  const auto step = [&] {
    const ActiveScope active(pool);
    for (int section = 0; section < 100; section++) pool.run(2, held);
  };
  step();
  CHECK_EQ(newsDuring(step), 0);
  CHECK_EQ(ran.load(), 400);
}

TEST("timing an entry asks for no memory") {
  Profiler profiler;
  ProfileEntry& entry =
      profiler.add("/model/layers.0/attn/qkv_proj/Linear, a name that is too long to stand in a string itself");
  for (int i = 0; i < 200; i++) profiler.add("another");
  CHECK_EQ(newsDuring([&] {
             for (int i = 0; i < 1000; i++) const ScopedTimer timed(entry);
           }),
           0);
  CHECK_EQ(profiler.entries().front().runs, 1000);
}

TEST("a warm sampler asks for no memory, greedy or not, with penalties and a mask") {
  const int32_t vocab = 5000;
  const std::vector<float> row = randomRow(vocab, 3);
  const std::vector<int32_t> history = {1, 7, 7, 4999, 23};
  const std::vector<int32_t> allowed(vocab / 32, -1);
  Sampling narrow = warm(0.7f);
  narrow.topK = 40, narrow.topP = 0.9f, narrow.minP = 0.01f;
  Sampling penalised = narrow;
  penalised.repetitionPenalty = 1.1f, penalised.frequencyPenalty = 0.2f, penalised.presencePenalty = 0.1f;
  for (const Sampling& sampling : {Sampling{}, warm(1), narrow, penalised})
    for (const int32_t words : {0, static_cast<int32_t>(allowed.size())}) {
      Sampler sampler(vocab);
      std::vector<float> scratch = row;
      const History said{history.data(), static_cast<int32_t>(history.size()), 2};
      const auto draw = [&] {
        std::copy(row.begin(), row.end(), scratch.begin());
        sampler.sample(scratch.data(), sampling, said, {words > 0 ? allowed.data() : nullptr, words});
      };
      draw();
      CHECK_EQ(newsDuring(draw), 0);
    }
}
