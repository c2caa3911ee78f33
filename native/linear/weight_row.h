// One row of a matrix that lies in panels, as f32: what an embedding looks up. The values are those of
// models/quantisation/dequantise.ts bit for bit, so a table shared with the LM head costs nothing but its bytes.
#pragma once

#include "linear/linear.h"

namespace pocket {

// Writes weight.columns values. `row` lies inside the matrix.
void readWeightRow(const LinearWeight& weight, int row, float* out);

}  // namespace pocket
