// Linear layers over block-quantised weights in GGUF formats: y = x Wᵀ (+ bias), for one to thousands of rows of x.
// Reads weights in place, in the order of linear/layout.h. Several layers over the same x (q, k, v; gate, up) are one
// call. Independent of ONNX Runtime and N-API.
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

// kSwiGlu takes two outputs of equal shape: outputs[0].out = silu(y0) * y1, biases included; outputs[1].out is not
// written and may be null.
enum class Combine : uint8_t { kNone, kSwiGlu };

// kInt8 quantizes each row of x to eight bits with a scale per 32 columns (a row with a NaN or an infinity gives NaN in
// the outputs that depend on it); kF32 multiplies the exact weights in f32.
enum class Activations : uint8_t { kInt8, kF32 };

class Linear {
 public:
  virtual ~Linear() = default;
  // x (rows, columns), contiguous; every output has as many columns. The bits of a row depend on that row and the
  // weights alone: not on other rows, other outputs or the threads. Throws BAD_ARGUMENT, before any write, if the
  // shapes do not fit. Scratch memory grows to the largest call: one call at a time.
  virtual void run(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine,
                   Activations activations, const ParallelFor& parallelFor) const = 0;
  // The first weights that body `thread` of a run with few rows reads, for prefetching: `bytes` from `first`, and with
  // a SwiGLU factor as many from `second`, alternating by panel. After the first piece other threads may have taken the
  // panels. bytes is 0 if there are fewer pieces. Changes scratch memory: not during a run.
  struct Start {
    const uint8_t* first = nullptr;
    const uint8_t* second = nullptr;  // null without a factor
    size_t bytes = 0;
  };
  virtual Start startOf(const LinearOutput* outputs, int count, Combine combine, int thread) const = 0;
  // The name of the kernel: "portable", "avx2", "avx512vnni", "amx", …
  virtual const char* kernel() const = 0;
};

// `threads` is how many bodies of a ParallelFor may run at once. Throws BAD_ARGUMENT when the isa is not supported
// here. Both AVX-512 values take the VNNI kernel where the processor has it, else the AVX2 one; kAmx multiplies many
// rows in tiles, with the bits of the VNNI kernel.
std::unique_ptr<Linear> makeLinear(Isa isa, int threads);

// With a kernel of the caller, which must outlive the result. For tests.
std::unique_ptr<Linear> makeLinear(const LinearKernel& kernel, int threads);

// Naive reference in double, for tests. With kInt8 it quantizes x as the kernels do, so that only the order of sums
// differs.
void referenceLinear(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine,
                     Activations activations);

// W[row, column] in double, read literally from the layout. For tests.
double referenceWeight(const LinearWeight& weight, int row, int column);

}  // namespace pocket
