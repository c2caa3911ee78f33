// Linear layers over block-quantised weights as a GGUF file has them: y = x Wᵀ (+ bias), for one row of x up to
// thousands. Weights are read where they lie, in the order of linear/layout.h, and never written. Several layers
// that read the same x (q, k, v; gate, up) are one call. Knows neither ONNX Runtime nor N-API.
#pragma once

#include <memory>

#include "cpu/features.h"
#include "cpu/parallel_for.h"
#include "linear/layout.h"

namespace pocket {

struct LinearKernel;  // linear/job.h

struct LinearWeight {
  const uint8_t* panels = nullptr;  // panelBytes(format, rows, columns) bytes, any alignment
  int rows = 0;                     // of W: columns of the result
  int columns = 0;                  // a multiple of 32, of 256 for the k formats
  BlockFormat format = BlockFormat::kQ4_0;
};

struct LinearOutput {
  LinearWeight weight;
  const float* bias = nullptr;  // (weight.rows), or null
  float* out = nullptr;         // (rows of x, weight.rows)
};

// kSwiGlu takes two outputs of equal shape: outputs[0].out = silu(y0) * y1 with biases added before; outputs[1].out
// is not written and may be null.
enum class Combine : uint8_t { kNone, kSwiGlu };

// kInt8 rounds each row of x to eight bits with a scale per 32 columns (a row with a NaN or an infinity becomes NaN
// in those outputs that see it); kF32 multiplies the weights' exact values in f32.
enum class Activations : uint8_t { kInt8, kF32 };

class Linear {
 public:
  virtual ~Linear() = default;
  // x (rows, columns), contiguous; every output has as many columns. A row's bits depend on that row and the weights
  // alone: not on the other rows, their number, the other outputs nor on which threads run. Throws BAD_ARGUMENT
  // before anything is written when the shapes do not fit. Keeps scratch memory between calls, which grows to the
  // largest call so far: one call at a time.
  virtual void run(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine,
                   Activations activations, const ParallelFor& parallelFor) const = 0;
  // Where body `thread` of a run of few rows begins to read: `bytes` up to the end of a weight, and with a factor as
  // many of that, in turns by panels. Behind the body's first piece others may have been there before. No bytes where
  // there are fewer pieces. Changes scratch memory: not while a run is on.
  struct Start {
    const uint8_t* first = nullptr;
    const uint8_t* second = nullptr;  // null without a factor
    size_t bytes = 0;
  };
  virtual Start startOf(const LinearOutput* outputs, int count, Combine combine, int thread) const = 0;
  // The kernel that runs: "portable", "avx2", "avx512vnni", "amx", …
  virtual const char* kernel() const = 0;
};

// `threads` is how many bodies of a ParallelFor may run at once. Throws BAD_ARGUMENT when the isa is not supported
// here. Both AVX-512 values take the VNNI kernel where the processor has it, else the AVX2 one; kAmx multiplies many
// rows in tiles, with the bits of the VNNI kernel.
std::unique_ptr<Linear> makeLinear(Isa isa, int threads);

// With a kernel of the caller's, which outlives the result. For tests.
std::unique_ptr<Linear> makeLinear(const LinearKernel& kernel, int threads);

// The same result by plain loops in double, read from the layout by the letter. With kInt8 it rounds x as the
// kernels do, so that what is left to differ is the order of sums. For tests.
void referenceLinear(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine,
                     Activations activations);

// W[row, column] in double, by the letter of the layout. For tests.
double referenceWeight(const LinearWeight& weight, int row, int column);

}  // namespace pocket
