// One row of a packed matrix as f32: an embedding lookup. Values equal models/quantisation/dequantise.ts bit for bit,
// so the embedding can share the packed table of the LM head.
#pragma once

#include "linear/linear.h"

namespace pocket {

// Writes weight.columns values. 0 <= row < weight.rows.
void readWeightRow(const LinearWeight& weight, int row, float* out);

}  // namespace pocket
