// pocket::Linear and pocket::Embedding as operators of ONNX Runtime: they check what the graph says against what
// arrives, and hand pointers to linear/linear.h, linear/rms_norm.h and linear/weight_row.h. Weights are the mapped bytes of the weights
// file, in panels (linear/layout.h). Failures go back as statuses. No arithmetic here.
//
//   Linear     y_i = x W_iᵀ + bias_i, up to three of them, or silu(y_0) * y_1 where combine is 1. With a gain x is
//              first replaced by the RMS norm of x (+ branch).
//     inputs   x [T, columns] f32; panels_i uint8 and bias_i f32 [rows_i], i = 0 … 2; gain f32 [columns]; branch as x
//     outputs  y_0 … y_2 [T, rows_i] f32; x + branch
//     attributes  columns, weights (1 … 3), rows_i, format_i (a BlockFormat), combine, activations, epsilon, sum (is there
//              that last output)
//   Embedding  (tokens int64 [T], panels uint8) -> [T, columns] f32; attributes: rows, columns, format
//
// All but x, panels_0 and y_0 may be left out.
#pragma once

#include <vector>

#include "linear/linear.h"
#include "runtime/mapped_file.h"
#include "runtime/ort_kernel.h"
#include "runtime/thread_pool.h"

namespace pocket {

struct LinearOpKernel;

struct LinearOp : ort::OrtCustomOp {
  LinearOp();

  const ort::OrtTable* table = nullptr;
  Linear* linear = nullptr;
  // Null: the session's threads.
  ThreadPool* threadPool = nullptr;
  // Null: weights are read where the library has them.
  const MappedFile* weights = nullptr;
  // Gets a part for each node while a session is created.
  Profiler* profiler = nullptr;
  // Where the norms of all nodes are counted, which are also in those of the nodes.
  ProfileEntry* norms = nullptr;
  // Of this operator in the graph; counted while a session is created.
  mutable int nodes = 0;
  // The node that ran last.
  mutable LinearOpKernel* last = nullptr;
  // Normed rows, shared by all nodes, of which one runs at a time; grows to the largest step.
  mutable std::vector<float> scratch;
};

struct EmbeddingOp : ort::OrtCustomOp {
  EmbeddingOp();

  const ort::OrtTable* table = nullptr;
  ThreadPool* threadPool = nullptr;
  Profiler* profiler = nullptr;
};

}  // namespace pocket
