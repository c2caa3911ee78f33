// Table of rotary position angles (Su et al., 2021, arXiv 2104.09864), half layout: dimension d of the first half is
// rotated with dimension d + headDim / 2. Angles are computed in double; a float angle at position 30,000 has an error
// of 1e-3. A query against moved keys is rotated for index - delta, which is below twice the context (birth and index
// are both below the context), so the table has 2 * context rows.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace pocket {

class Rope {
 public:
  Rope(int headDim, int context, double base)
      : half_(headDim / 2), positions_(2 * context), table_(static_cast<size_t>(positions_) * headDim) {
    std::vector<double> frequency(half_);
    for (int d = 0; d < half_; d++) frequency[d] = std::pow(base, -2.0 * d / headDim);
    for (int p = 0; p < positions_; p++) {
      float* row = table_.data() + static_cast<size_t>(p) * headDim;
      for (int d = 0; d < half_; d++) {
        const double angle = p * frequency[d];
        row[d] = static_cast<float>(std::cos(angle));
        row[half_ + d] = static_cast<float>(std::sin(angle));
      }
    }
  }

  int positions() const { return positions_; }
  // headDim / 2 cosines, then headDim / 2 sines. 0 <= position < positions().
  const float* row(int position) const { return table_.data() + static_cast<size_t>(position) * 2 * half_; }

 private:
  int half_;
  int positions_;
  std::vector<float> table_;
};

}  // namespace pocket
