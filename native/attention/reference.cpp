// Naive reference: attention in double, one cell at a time, directly over the store. Tests compare every kernel with
// it. Not used to serve requests.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/attention.h"

namespace pocket {

void referenceAttention(const AttentionShape& shape, const KvShape& store, const Rope& rope, const Batch& batch,
                        const AttentionInput& input, const KvLayer& layer) {
  const int dim = shape.headDim, half = dim / 2, group = shape.heads / shape.kvHeads;
  std::vector<float> key(dim), value(dim);
  std::vector<double> scores, sum(dim);
  for (const BatchEntry& entry : batch.entries)
    for (int row = entry.firstRow; row < entry.firstRow + entry.rowCount; row++)
      for (int h = 0; h < shape.heads; h++) {
        const int64_t at = (int64_t{row} * shape.heads + h) * dim;
        const float* q = input.q + at;
        double weight = 0, maximum = -INFINITY;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int pass = 0; pass < 2; pass++)  // pass 0 finds the largest score
          for (int i = entry.firstStretch; i < entry.firstStretch + entry.stretchCount; i++) {
            const Stretch& s = batch.stretches[i];
            for (int c = 0; c < s.count && s.index + c <= batch.rows[row].index; c++) {
              readSlot(store, layer, h / group, s.slot + c, key.data(), value.data());
              const float* turn = rope.row(batch.rows[row].index - s.delta);
              double score = 0;
              for (int d = 0; d < half; d++) {
                const double cosine = turn[d], sine = turn[half + d];
                score += (q[d] * cosine - q[half + d] * sine) * key[d];
                score += (q[half + d] * cosine + q[d] * sine) * key[half + d];
              }
              score *= shape.scale;
              if (pass == 0) {
                maximum = std::max(maximum, score);
                continue;
              }
              const double p = std::exp(score - maximum);
              weight += p;
              for (int d = 0; d < dim; d++) sum[d] += p * value[d];
            }
          }
        for (int d = 0; d < dim; d++) input.out[at + d] = static_cast<float>(sum[d] / weight);
      }
}

}  // namespace pocket
