// RMS norm (Zhang and Sennrich, 2019, arXiv 1910.07467) of the residual stream, fused with the addition before it. The
// bits of a row depend on that row alone. Plain loops, auto-vectorised: limited by memory.
#pragma once

namespace pocket {

// sum = x + branch (null: sum = x); normed = sum / sqrt(mean(sum²) + epsilon) * gain. One row of `columns` numbers
// each; `sum` may be null or equal x.
void rmsNorm(const float* x, const float* branch, const float* gain, float epsilon, int columns, float* sum,
             float* normed);

}  // namespace pocket
