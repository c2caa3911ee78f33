// The loops of the sampler that run over a whole vocabulary, once per kind of vector register. All kinds are compiled
// from one text (sampler/kernels/body.h) without contraction and give the same bits: lanes are counted in the source, not
// by the register. Called by Sampler, on any thread; they keep nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace pocket {

enum class Isa : uint8_t;  // cpu/features.h, whose inline functions stay out of files with flags of their own

// Rows are walked in blocks; per-block results have one value for each begun block of kRowBlock.
inline constexpr int32_t kRowBlock = 256;
inline constexpr int32_t rowBlocks(int32_t count) { return (count + kRowBlock - 1) / kRowBlock; }

// Weights that masses() measures at once.
inline constexpr int32_t kBars = 8;

struct RowLoops {
  const char* name;
  // Per block the largest finite value; -inf where there is none.
  void (*peaks)(const float* logits, int32_t count, float* blockPeaks);
  // weights[i] = e^((logits[i] - peak) / temperature), 0 for what is not finite; per block their sums. The total.
  double (*weigh)(const float* logits, int32_t count, float peak, float temperature, float* weights, double* blockSums);
  // The total of weigh at temperature 1 without the weights.
  double (*mass)(const float* logits, int32_t count, float peak);
  // Puts 0 in the place of every weight under `least`, or behind (lastLogit, lastToken) in the order of likelihood.
  // Per block the sums of what is left, and the total.
  double (*admit)(const float* logits, int32_t count, float lastLogit, int32_t lastToken, float least, float* weights,
                  double* blockSums);
  // For each of kBars bars the sum of the weights over it, to about six digits.
  void (*masses)(const float* weights, int32_t count, const float* bars, double* overBars);
};

// The fastest within an instruction set that this machine has.
const RowLoops& rowLoopsFor(Isa isa);
// All that this machine can run, the fastest last. Never empty. For tests and benches.
std::vector<const RowLoops*> supportedRowLoops();

}  // namespace pocket
