// One sequence on pages of four slots: where cells stand after an edit, which slots new ones get, how long the
// exact part is. Cases small enough to be read; the random ones are in cache_test.cpp.
#include "cache/sequence.h"

#include "support/check.h"

using namespace pocket;

namespace {

std::vector<int32_t> slots(const Sequence& sequence) {
  std::vector<int32_t> all;
  for (const Cell& cell : sequence.cells()) all.push_back(cell.slot);
  return all;
}

std::vector<int32_t> births(const Sequence& sequence) {
  std::vector<int32_t> all;
  for (const Cell& cell : sequence.cells()) all.push_back(cell.birth);
  return all;
}

// Fills every gap; token i stands for "filled as the i-th".
void fill(Sequence& sequence, int32_t first = 100) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < sequence.gapTokens(); i++) tokens.push_back(first + i);
  sequence.commit(tokens.data(), static_cast<int32_t>(tokens.size()));
}

void open(Sequence& sequence, int32_t count) {
  sequence.splice({{sequence.length(), sequence.length(), count}});
  fill(sequence);
}

using Ints = std::vector<int32_t>;

}  // namespace

TEST("(1) survivors of a splice keep slot, birth and token and stand at their new index") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 6);
  sequence.splice({{1, 4, 2}});
  CHECK_EQ(slots(sequence), (Ints{0, 6, 7, 4, 5}));
  CHECK_EQ(births(sequence), (Ints{0, -1, -1, 4, 5}));
  CHECK_EQ(sequence.tokens(), (Ints{100, -1, -1, 104, 105}));
  CHECK_EQ(sequence.gapTokens(), 2);
  CHECK_EQ(sequence.filledHead(), 1);
  fill(sequence, 200);
  CHECK_EQ(births(sequence), (Ints{0, 1, 2, 4, 5}));
  CHECK_EQ(sequence.tokens(), (Ints{100, 200, 201, 104, 105}));
  CHECK_EQ(sequence.deltas(), 2);
}

TEST("(8) several splices of one edit are in old coordinates") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 8);
  sequence.splice({{0, 2, 1}, {3, 3, 2}, {5, 8, 0}});
  CHECK_EQ(sequence.tokens(), (Ints{-1, 102, -1, -1, 103, 104}));
  CHECK_EQ(slots(sequence), (Ints{8, 2, 9, 10, 3, 4}));
}

TEST("(8) splices that overlap, run backwards or leave the sequence are refused") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 8);
  CHECK_THROWS_CODE(sequence.splice({{0, 3, 1}, {2, 4, 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(sequence.splice({{4, 5, 1}, {1, 2, 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(sequence.splice({{3, 2, 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(sequence.splice({{-1, 2, 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(sequence.splice({{0, 9, 1}}), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(sequence.splice({{0, 1, -1}}), "BAD_ARGUMENT");
  CHECK_EQ(sequence.length(), 8);
}

TEST("two splices may touch, and may insert twice at one place") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 4);
  sequence.splice({{0, 1, 1}, {1, 2, 0}, {2, 2, 1}, {2, 2, 2}});
  CHECK_EQ(sequence.tokens(), (Ints{-1, -1, -1, -1, 102, 103}));
}

TEST("a sequence does not grow beyond its context, by splice or by adopt") {
  Pool pool(8, 4);
  Sequence sequence(pool, 10);
  open(sequence, 10);
  CHECK_THROWS_CODE(sequence.splice({{10, 10, 1}}), "CONTEXT_LENGTH_EXCEEDED");
  CHECK_THROWS_CODE(sequence.splice({{0, 1, 2147483647}}), "CONTEXT_LENGTH_EXCEEDED");
  CHECK_THROWS_CODE(sequence.adopt(sequence, 0, 1), "CONTEXT_LENGTH_EXCEEDED");
  sequence.splice({{0, 1, 1}});
  CHECK_EQ(sequence.length(), 10);
}

TEST("new cells take the rest of the open page before a fresh one") {
  Pool pool(4, 4);
  Sequence a(pool, 16), b(pool, 16);
  open(a, 2);
  open(b, 1);
  open(a, 3);
  CHECK_EQ(slots(a), (Ints{0, 1, 2, 3, 8}));
  CHECK_EQ(slots(b), (Ints{4}));
}

TEST("(5) a slot whose cell was cut is not allocated again while its page is in use") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 3);
  sequence.splice({{1, 3, 0}});
  open(sequence, 2);
  CHECK_EQ(slots(sequence), (Ints{0, 3, 4}));
}

TEST("(5) an open page that an edit frees is no longer open and can be allocated again") {
  Pool pool(1, 4);
  Sequence sequence(pool, 16);
  open(sequence, 3);
  sequence.splice({{0, 3, 4}});
  CHECK_EQ(slots(sequence), (Ints{0, 1, 2, 3}));
}

TEST("(5) an open page that another sequence freed last is not written in again") {
  Pool pool(4, 4);
  Sequence owner(pool, 16), other(pool, 16);
  open(owner, 2);
  {
    Sequence fork(owner, 2);
    owner.splice({{0, 2, 0}});  // page 0 stays allocated: it has cells of the fork
  }
  open(other, 1);  // page 0, allocated again
  open(owner, 1);
  CHECK_EQ(slots(other), (Ints{0}));
  CHECK_EQ(slots(owner), (Ints{4}));
}

TEST("(5) a fork shares pages but never writes in them") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 2);
  Sequence fork(sequence, 2);
  CHECK_EQ(pool.cells(0), 4);
  open(fork, 1);
  open(sequence, 1);
  CHECK_EQ(slots(fork), (Ints{0, 1, 4}));
  CHECK_EQ(slots(sequence), (Ints{0, 1, 2}));
}

TEST("a fork of cells that are not filled, or not there, is refused") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 4);
  sequence.splice({{2, 3, 1}});
  CHECK_THROWS_CODE(Sequence(sequence, 3), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Sequence(sequence, 5), "BAD_ARGUMENT");
  CHECK_THROWS_CODE(Sequence(sequence, -1), "BAD_ARGUMENT");
  Sequence fork(sequence, 2);
  CHECK_EQ(fork.length(), 2);
  CHECK_EQ(fork.gapTokens(), 0);
}

TEST("(4) adopted cells keep their births, may stand twice, and share their page") {
  Pool pool(4, 4);
  Sequence archived(pool, 16), sequence(pool, 16);
  open(archived, 4);
  open(sequence, 1);
  sequence.adopt(archived, 1, 3);
  sequence.adopt(sequence, 0, 2);
  CHECK_EQ(slots(sequence), (Ints{4, 1, 2, 4, 1}));
  CHECK_EQ(births(sequence), (Ints{0, 1, 2, 0, 1}));
  CHECK_EQ(sequence.deltas(), 2);
  CHECK_EQ(sequence.exactLength(), 1);
  CHECK_EQ(pool.cells(0), 7);
  CHECK_THROWS_CODE(sequence.adopt(archived, 3, 5), "BAD_ARGUMENT");
  archived.splice({{1, 2, 1}});
  CHECK_THROWS_CODE(sequence.adopt(archived, 0, 2), "BAD_ARGUMENT");
}

TEST("CACHE_FULL counts the pages that the edit itself frees, and says the numbers") {
  Pool pool(3, 4);
  Sequence sequence(pool, 64);
  open(sequence, 12);
  CHECK_THROWS_CODE(sequence.splice({{0, 3, 4}}), "CACHE_FULL");
  sequence.splice({{0, 4, 4}});  // page 0 whole
  fill(sequence);
  try {
    sequence.splice({{0, 5, 9}});
    CHECK(false);
  } catch (const Error& full) {
    CHECK_EQ(std::string(full.what()), "The cache has 1 free pages of 4 tokens; this request needs 3.");
  }
}

TEST("the same slots in a row with the same delta are one stretch, and a plan covers all up to its last row") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 6);
  sequence.splice({{1, 4, 2}, {6, 6, 1}});  // slots 0 | 6 7 | 4 5 | 8
  Batch batch;
  sequence.plan(3, batch);
  CHECK_EQ(batch.rows.size(), 3u);
  CHECK_EQ(batch.rows[2].index, 5);
  CHECK_EQ(batch.rows[2].slot, 8);
  CHECK_EQ(batch.stretches.size(), 4u);
  CHECK_EQ(batch.stretches[1].slot, 6);
  CHECK_EQ(batch.stretches[1].count, 2);
  CHECK_EQ(batch.stretches[1].delta, 0);
  CHECK_EQ(batch.stretches[2].index, 3);
  CHECK_EQ(batch.stretches[2].delta, -1);
  Batch shorter;
  sequence.plan(1, shorter);
  CHECK_EQ(shorter.stretches.size(), 2u);
  CHECK_EQ(shorter.stretches[1].count, 1);
}

TEST("(9) an append to an exact sequence stays exact") {
  Pool pool(8, 4);
  Sequence sequence(pool, 64);
  open(sequence, 5);
  open(sequence, 2);
  CHECK_EQ(sequence.exactLength(), 7);
}

TEST("(9) an edit in front of survivors leaves what it inserted exact, and an append changes nothing then") {
  Pool pool(8, 4);
  Sequence sequence(pool, 64);
  open(sequence, 10);
  sequence.splice({{2, 5, 4}, {10, 10, 3}});
  CHECK_EQ(sequence.exactLength(), 6);
  fill(sequence);
  CHECK_EQ(sequence.exactLength(), 6);
  open(sequence, 1);
  CHECK_EQ(sequence.exactLength(), 6);
}

TEST("(9) splices with no survivor between them count as one, and up to the end when none is behind") {
  Pool pool(8, 4);
  Sequence sequence(pool, 64);
  open(sequence, 10);
  Sequence fork(sequence, 10);
  sequence.splice({{2, 4, 1}, {4, 6, 2}, {8, 9, 5}});
  CHECK_EQ(sequence.exactLength(), 5);
  fork.splice({{2, 10, 1}, {10, 10, 7}});
  CHECK_EQ(fork.exactLength(), 10);
}

TEST("(9) a repair from the exact length on moves it forward, at last to the end") {
  Pool pool(8, 4);
  Sequence sequence(pool, 64);
  open(sequence, 10);
  sequence.splice({{0, 2, 1}});
  fill(sequence);
  CHECK_EQ(sequence.exactLength(), 1);
  sequence.splice({{5, 7, 2}});  // behind the exact length: better, not exact
  fill(sequence);
  CHECK_EQ(sequence.exactLength(), 1);
  sequence.splice({{1, 4, 3}});
  fill(sequence);
  CHECK_EQ(sequence.exactLength(), 4);
  sequence.splice({{4, 9, 5}});
  fill(sequence);
  CHECK_EQ(sequence.exactLength(), 9);
}

TEST("(9) a gap that is not filled yet does not end the exact part, an edit in it does not shorten it") {
  Pool pool(8, 4);
  Sequence sequence(pool, 64);
  open(sequence, 6);
  sequence.splice({{1, 3, 4}});
  CHECK_EQ(sequence.exactLength(), 5);
  sequence.splice({{2, 3, 3}});
  CHECK_EQ(sequence.exactLength(), 7);
  sequence.splice({{7, 10, 0}});
  CHECK_EQ(sequence.exactLength(), 7);
}

TEST("(9) splices that change nothing, and cuts behind the exact length, leave it") {
  Pool pool(8, 4);
  Sequence sequence(pool, 64);
  open(sequence, 8);
  sequence.splice({{3, 3, 0}});
  CHECK_EQ(sequence.exactLength(), 8);
  sequence.splice({{2, 3, 0}});
  CHECK_EQ(sequence.exactLength(), 2);
  sequence.splice({{1, 1, 0}, {4, 7, 0}});
  CHECK_EQ(sequence.exactLength(), 2);
  sequence.splice({{1, 4, 0}});
  CHECK_EQ(sequence.exactLength(), 1);
}

TEST("draft tokens that were wrong leave pages, marks and slots as if they had never stood there") {
  Pool pool(4, 4);
  Sequence sequence(pool, 16);
  open(sequence, 3);
  const DraftCells draft = sequence.openDraft(6);
  CHECK_EQ(draft.count, 6);
  CHECK_EQ(pool.pagesFree(), 1);
  const Ints tokens{7, 8, 9};
  sequence.commit(tokens.data(), 3);
  sequence.rollbackDraft(draft, 3);
  CHECK_EQ(slots(sequence), (Ints{0, 1, 2, 3, 4, 5}));
  CHECK_EQ(sequence.tokens(), (Ints{100, 101, 102, 7, 8, 9}));
  CHECK_EQ(sequence.exactLength(), 6);
  CHECK_EQ(sequence.gapTokens(), 0);
  CHECK_EQ(pool.pagesFree(), 2);
  CHECK(!pool.written(6));
  open(sequence, 1);
  CHECK_EQ(slots(sequence).back(), 6);
}

TEST("draft tokens shrink to what pages and the context leave room for") {
  Pool pool(2, 4);
  Sequence sequence(pool, 7);
  Sequence other(pool, 7);
  open(other, 1);
  open(sequence, 2);
  CHECK_EQ(sequence.openDraft(6).count, 2);
  Pool wide(4, 4);
  Sequence bounded(wide, 7);
  open(bounded, 5);
  CHECK_EQ(bounded.openDraft(6).count, 2);
}
