// The packed work of one step, in plain numbers: what the cache writes down and the attention kernel reads.
// Rows are the new tokens of all sequences, one after another. Changes nothing; valid for one step.
#pragma once

#include <cstdint>
#include <vector>

namespace pocket {

// Draft tokens per sequence and step at most, and the rows of a decode step with them. In entries of at most kDecodeRows
// rows each row gets the bits that it gets alone, so that sampled tokens do not depend on drafts. Larger entries, chunks
// of prompts, make no such promise.
inline constexpr int32_t kMaxDraftTokens = 16;
inline constexpr int32_t kDecodeRows = 1 + kMaxDraftTokens;

// Neighbouring slots whose cells have neighbouring indices and one difference index - birth.
//
//   slot    s  s+1  s+2 …          index   i  i+1  i+2 …          delta = index - birth, the same for all
//
// A key in it was rotated for position index - delta, so a query at position m is rotated for m - delta.
struct Stretch {
  int32_t slot = 0;
  int32_t count = 0;
  int32_t index = 0;
  int32_t delta = 0;
};

// One new token: the slot of its key and value, and its index. Its key is rotated for `index`.
struct Row {
  int32_t index = 0;
  int32_t slot = 0;
};

// The part of a batch that belongs to one sequence.
struct BatchEntry {
  int32_t firstRow = 0;  // rows [firstRow, firstRow + rowCount), indices strictly ascending
  int32_t rowCount = 0;
  int32_t firstStretch = 0;  // stretches [firstStretch, firstStretch + stretchCount), by ascending index:
  int32_t stretchCount = 0;  // every cell below and including the last row's index, this step's own included
};

struct Batch {
  std::vector<Row> rows;
  std::vector<Stretch> stretches;
  std::vector<BatchEntry> entries;
};

}  // namespace pocket
