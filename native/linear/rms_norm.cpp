#include "linear/rms_norm.h"

#include <cmath>

namespace pocket {

namespace {

// Independent partial sums, so that the loop vectorises without -ffast-math.
constexpr int kLanes = 16;

}  // namespace

void rmsNorm(const float* x, const float* branch, const float* gain, float epsilon, int columns, float* sum,
             float* normed) {
  if (branch == nullptr) {
    for (int c = 0; c < columns; c++) normed[c] = x[c];
  } else {
    for (int c = 0; c < columns; c++) normed[c] = x[c] + branch[c];
  }
  float squares[kLanes] = {};
  int c = 0;
  for (; c + kLanes <= columns; c += kLanes) {
    for (int l = 0; l < kLanes; l++) squares[l] += normed[c + l] * normed[c + l];
  }
  double total = 0;
  for (; c < columns; c++) total += static_cast<double>(normed[c]) * normed[c];
  for (const float lane : squares) total += lane;
  if (sum != nullptr) {
    for (c = 0; c < columns; c++) sum[c] = normed[c];
  }
  const float scale = static_cast<float>(1 / std::sqrt(total / columns + epsilon));
  for (c = 0; c < columns; c++) normed[c] = normed[c] * scale * gain[c];
}

}  // namespace pocket
