// All sequences by their ids over one pool: the bookkeeping half of the engine. Deciding (plan) and recording
// (commit) are apart, because between them a step computes on another thread; nothing else may be called that
// changes cells meanwhile. Knows no floats. Used by Runner, on one thread. A call that throws has changed
// nothing. Unknown ids are BAD_ARGUMENT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cache/batch.h"
#include "cache/invariants.h"
#include "cache/pool.h"
#include "cache/sequence.h"
#include "cache/splice.h"

namespace pocket {

// The first `count` gap cells of a sequence, front to back, and what they shall hold.
struct Fill {
  int32_t sequence = 0;
  const int32_t* tokens = nullptr;  // outlives plan and commit
  int32_t count = 0;
};

struct SequenceInfo {
  int32_t length = 0;
  int32_t gapTokens = 0;
  // Leading cells that are filled and equal to a cold prefill: never beyond the first gap, though an edit
  // at the end of an exact sequence is exact again as soon as its gap is filled.
  int32_t exactLength = 0;
  int32_t deltas = 0;  // distinct index - birth
};

struct CacheStats {
  int32_t pagesFree = 0;
  int32_t pagesUsed = 0;
  int32_t pages = 0;
  int32_t sequences = 0;
  int64_t cells = 0;  // over all sequences; shared ones count in each
  int64_t gapTokens = 0;
};

// A copy for inspection, one value per cell. A gap has birth and token -1.
struct Cells {
  std::vector<int32_t> slots;
  std::vector<int32_t> births;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> filled;
};

class Cache {
 public:
  // pageSize a multiple of 16, the tile that the attention kernels read. `context` bounds each sequence.
  // Throws BAD_ARGUMENT.
  Cache(int32_t pages, int32_t pageSize, int32_t context);
  Cache(const Cache&) = delete;  // sequences point at their pool
  Cache& operator=(const Cache&) = delete;

  // An empty sequence. Ids are positive and not used again until 2^31 have been.
  int32_t create();
  // Idempotent, also for ids that never were. Pages with no other cell in them are free at once.
  void release(int32_t id) noexcept;
  // A new sequence with the first `length` cells, pages shared; needs no page. They must be filled.
  int32_t fork(int32_t id, int32_t length);
  // One edit: splices in old coordinates, ascending, disjoint. Throws CACHE_FULL (pages that its own cuts free
  // count as available), CONTEXT_LENGTH_EXCEEDED, BAD_ARGUMENT.
  void splice(int32_t id, const std::vector<CellSplice>& splices);
  // Appends the filled cells [start, end) of `from`; births stay, so they are relocated and never exact.
  // The same slot may then occur twice. Needs no page. Throws CONTEXT_LENGTH_EXCEEDED, BAD_ARGUMENT.
  void adopt(int32_t id, int32_t from, int32_t start, int32_t end);

  // The step that makes these fills: one entry per fill, in order. Changes nothing; valid until cells change.
  // Throws BAD_ARGUMENT when a fill is empty, has more tokens than its sequence gap cells, or names a
  // sequence a second time.
  Batch plan(const std::vector<Fill>& fills) const;
  // Records that a planned fill, or its first tokens, were computed.
  void commit(const Fill& fill) noexcept;

  // Cells for a step's draft tokens; see Sequence. stats() does not count them while they are open.
  DraftCells openDraft(int32_t id, int32_t count);
  void rollbackDraft(int32_t id, const DraftCells& draft, int32_t kept) noexcept;

  // Whether filling `count` tokens closes every gap and the last of them is the sequence's last cell: only
  // then does its row of logits say what comes next (6).
  bool completes(int32_t id, int32_t count) const;
  // The whole sequence as it reads once `count` tokens have filled its first gaps, for the penalties of
  // sampling. -1 where a gap stays open.
  std::vector<int32_t> history(int32_t id, const int32_t* tokens, size_t count) const;

  // For files. `capture` is a fork of the filled leading cells, which holds on to their pages; `open` is a new
  // sequence of `count` gap cells (throws as splice does), and `restore` fills all of them at once.
  int32_t capture(int32_t id) { return fork(id, at(id).filledHead()); }
  int32_t open(int32_t count);
  void restore(int32_t id, const std::vector<int32_t>& tokens, const std::vector<int32_t>& births,
               int32_t exactLength) noexcept;

  SequenceInfo info(int32_t id) const;
  CacheStats stats() const;
  Cells cells(int32_t id) const;
  // Everything there is to know; copies it.
  CacheSnapshot snapshot() const;
  // The violated invariants, one sentence each; see cache/invariants.h. For tests: copies all cells.
  std::vector<std::string> violations() const { return pocket::violations(snapshot()); }

 private:
  const Sequence& at(int32_t id) const;
  Sequence& at(int32_t id) { return const_cast<Sequence&>(static_cast<const Cache*>(this)->at(id)); }
  int32_t freshId() noexcept;

  int32_t context_;
  int32_t lastId_ = 0;
  int32_t draftCells_ = 0, draftPages_ = 0;  // of open drafts
  Pool pool_;  // outlives the sequences, so it is declared before them
  std::map<int32_t, Sequence> sequences_;
};

}  // namespace pocket
