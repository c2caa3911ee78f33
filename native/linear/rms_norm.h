// RMS norm (Zhang and Sennrich, 2019, arXiv 1910.07467) of the residual stream, with the sum that goes before it. A
// row's bits depend on that row alone. Plain loops that vectorise: it moves memory, the products beside it compute.
#pragma once

namespace pocket {

// sum = x + branch (branch may be null: sum = x); normed = sum / sqrt(mean(sum²) + epsilon) * gain. One row of
// `columns` numbers each; `sum` may be null where nobody wants it, or be x itself.
void rmsNorm(const float* x, const float* branch, const float* gain, float epsilon, int columns, float* sum,
             float* normed);

}  // namespace pocket
