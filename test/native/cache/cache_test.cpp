// The cache as the runner sees it, on pages of 16: refusals, release, completion, and the checker of the
// invariants itself. Random lives of it are in random_test.cpp.
#include "cache/cache.h"

#include <algorithm>

#include "cache/reference_cache.h"
#include "support/check.h"

using namespace pocket;

namespace {

using Ints = std::vector<int32_t>;

// Sequence 1 with `length` filled cells.
void fillFirst(Cache& cache, int32_t length) {
  const Ints tokens(length, 7);
  const int32_t id = cache.create();
  cache.splice(id, {{0, 0, length}});
  cache.commit({id, tokens.data(), length});
}

}  // namespace

TEST("(7) a throwing splice has changed nothing, whichever way it throws") {
  Cache cache(4, 16, 64);
  fillFirst(cache, 60);
  const int32_t id = 1;
  const CacheSnapshot before = cache.snapshot();
  CHECK_THROWS_CODE(cache.splice(id, {{0, 1, 5}}), "CACHE_FULL");
  CHECK_THROWS_CODE(cache.splice(id, {{0, 1, 6}}), "CONTEXT_LENGTH_EXCEEDED");
  CHECK_THROWS_CODE(cache.splice(id, {{0, 16, 1}, {15, 20, 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(cache.splice(id, {{0, 1, 2147483647}, {1, 2, 2147483647}}), "CONTEXT_LENGTH_EXCEEDED");
  CHECK(same(before, cache.snapshot()));
}

TEST("(10) release is idempotent, also for ids that never were, and gives every page back") {
  Cache cache(4, 16, 64);
  fillFirst(cache, 40);
  const int32_t fork = cache.fork(1, 20);
  cache.release(1);
  CHECK_EQ(cache.stats().pagesFree, 2);
  cache.release(1);
  cache.release(-5);
  cache.release(12345);
  CHECK_EQ(cache.stats().pagesFree, 2);
  cache.release(fork);
  CHECK_EQ(cache.stats().pagesFree, 4);
  CHECK_EQ(cache.stats().sequences, 0);
  CHECK_THROWS_CODE(cache.info(1), "BAD_ARGUMENT");
}

TEST("an id is not used again after its release") {
  Cache cache(1, 16, 16);
  const int32_t first = cache.create();
  cache.release(first);
  CHECK(cache.create() != first);
}

TEST("a plan refuses empty, excessive, repeated and unknown fills") {
  Cache cache(4, 16, 64);
  const int32_t id = cache.create();
  const Ints tokens(8, 1);
  cache.splice(id, {{0, 0, 4}});
  CHECK_THROWS_CODE(cache.plan({{id, tokens.data(), 5}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(cache.plan({{id, tokens.data(), 0}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(cache.plan({{id, tokens.data(), -1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(cache.plan({{id, tokens.data(), 1}, {id, tokens.data(), 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(cache.plan({{id + 1, tokens.data(), 1}}), "BAD_ARGUMENT");
  CHECK_EQ(cache.plan({{id, tokens.data(), 4}}).rows.size(), 4u);
  CHECK(cache.plan({}).entries.empty());
}

TEST("(6) a fill completes a sequence only when it closes every gap and ends at the last cell") {
  Cache cache(4, 16, 64);
  const int32_t id = cache.create();
  const Ints tokens(8, 1);
  CHECK(!cache.completes(id, 0));
  cache.splice(id, {{0, 0, 4}});
  CHECK(!cache.completes(id, 3));
  CHECK(cache.completes(id, 4));
  CHECK(!cache.completes(id, 5));
  cache.commit({id, tokens.data(), 4});
  CHECK(!cache.completes(id, 0));
  cache.splice(id, {{1, 2, 2}});  // survivors behind: their logits are not computed
  CHECK(!cache.completes(id, 2));
  cache.splice(id, {{5, 5, 1}});
  CHECK(cache.completes(id, 3));
  CHECK_THROWS_CODE(cache.completes(99, 1), "BAD_ARGUMENT");
}

TEST("the exact length of a sequence with gaps ends at the first of them until it is filled") {
  Cache cache(4, 16, 64);
  fillFirst(cache, 10);
  const Ints tokens(4, 3);
  cache.splice(1, {{10, 10, 4}});
  CHECK_EQ(cache.info(1).exactLength, 10);
  cache.commit({1, tokens.data(), 3});
  CHECK_EQ(cache.info(1).exactLength, 13);
  cache.commit({1, tokens.data(), 1});
  CHECK_EQ(cache.info(1).exactLength, 14);
}

TEST("a cache with a page size that kernels cannot read, or without context, is refused") {
  CHECK_THROWS_CODE(Cache(4, 4, 64), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Cache(4, 0, 64), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Cache(4, 24, 64), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Cache(4, 16, 0), "BAD_ARGUMENT");
}

TEST("the checker finds each invariant broken, by its number") {
  Cache cache(4, 16, 64);
  fillFirst(cache, 20);
  cache.splice(1, {{5, 6, 2}, {20, 20, 1}});
  const CacheSnapshot good = cache.snapshot();
  CHECK(violations(good).empty());
  const auto finds = [&](const std::string& number, void (*breakIt)(CacheSnapshot&)) {
    CacheSnapshot bad = good;
    breakIt(bad);
    const std::vector<std::string> found = violations(bad);
    const bool named =
        std::any_of(found.begin(), found.end(), [&](const std::string& s) { return s.rfind(number, 0) == 0; });
    if (!named) check::fail(__FILE__, __LINE__, number + " was not found broken");
  };
  finds("(1)", [](CacheSnapshot& s) { s.sequences[0].tokens.pop_back(); });
  finds("(1)", [](CacheSnapshot& s) { s.sequences[0].cells[3].birth = -1; });
  finds("(1)", [](CacheSnapshot& s) { s.context = 10; });
  finds("(2)", [](CacheSnapshot& s) { s.sequences[0].cells[3].slot = 64; });
  finds("(2)", [](CacheSnapshot& s) { s.allocations[0] = 0; });
  finds("(2)", [](CacheSnapshot& s) { s.written[3] = 0; });
  finds("(3)", [](CacheSnapshot& s) { s.pageCells[0]++; });
  finds("(3)", [](CacheSnapshot& s) { s.pagesFree--; });
  finds("(3)", [](CacheSnapshot& s) { s.allocations[3] = 9; });
  finds("(4)", [](CacheSnapshot& s) { s.sequences[0].cells[3].slot = s.sequences[0].cells[2].slot; });
  finds("(5)", [](CacheSnapshot& s) { s.written[s.sequences[0].cells[5].slot] = 1; });
  finds("(5)", [](CacheSnapshot& s) { s.sequences[0].cells[5].slot = s.sequences[0].cells[0].slot; });
  finds("(5)", [](CacheSnapshot& s) { s.sequences[0].open.used--; });
  finds("(5)", [](CacheSnapshot& s) {
    s.sequences.push_back(s.sequences[0]);
    s.sequences.back().id++;
  });
  finds("(6)", [](CacheSnapshot& s) { s.sequences[0].gapTokens--; });
  finds("(6)", [](CacheSnapshot& s) { s.sequences[0].filledHead++; });
  finds("(9)", [](CacheSnapshot& s) { s.sequences[0].exactLength = 9; });
  finds("(9)", [](CacheSnapshot& s) { s.sequences[0].exactLength = 5; });
  finds("(9)", [](CacheSnapshot& s) { s.sequences[0].exactLength = 99; });
  finds("(9)", [](CacheSnapshot& s) { s.sequences[0].cells[2].birth = 1; });
}
