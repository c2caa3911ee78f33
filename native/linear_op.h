// pocket::Linear and pocket::Embedding as operators of ONNX Runtime: they check what the graph says against what
// arrives, and hand pointers to linear.h and weight_row.h. Weights are the mapped bytes of the weights file, in
// panels (linear_layout.h). Failures go back as statuses. No arithmetic here.
//
//   Linear     (x [T, columns] f32, then for each weight i: panels uint8, bias f32 [rows_i] or nothing)
//              -> y_i [T, rows_i] f32, or one y where the two weights are combined
//              attributes: columns, weights (1 … 3), rows_i, format_i (a BlockFormat), combine, activations
//   Embedding  (tokens int64 [T], panels uint8) -> [T, columns] f32; attributes: rows, columns, format
#pragma once

#include "linear.h"
#include "ort_kernel.h"

namespace pocket {

struct LinearOp : ort::OrtCustomOp {
  LinearOp();

  const ort::OrtTable* table = nullptr;
  Linear* linear = nullptr;
};

struct EmbeddingOp : ort::OrtCustomOp {
  EmbeddingOp();

  const ort::OrtTable* table = nullptr;
};

}  // namespace pocket
