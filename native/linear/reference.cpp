// Naive reference of linear layers in double, written from linear/layout.h alone: no vectors, no tiles. Tests compare
// the kernels with it. Do not optimise.
#include <cmath>
#include <cstring>
#include <vector>

#include "linear/linear.h"

namespace pocket {
namespace {

double halfAt(const uint8_t* from) {
  const int bits = from[0] | from[1] << 8;
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

int codeAt(const uint8_t* group, int bits, int position) {
  if (bits == 8) return group[position];
  const int low = group[position % 256] >> (position < 256 ? 0 : 4) & 15;
  if (bits == 5) return low | (group[256 + position / 8] >> position % 8 & 1) << 4;
  if (bits == 6) return low | (group[256 + position % 128] >> position / 128 * 2 & 3) << 4;
  return low;
}

// Quantizes a row of x to eight bits, one scale per 32 columns, and dequantizes it.
std::vector<double> quantized(const float* x, int columns) {
  std::vector<double> result(columns);
  for (int k = 0; k < columns; k += kGroupColumns) {
    float largest = 0;
    bool finite = true;
    for (int i = k; i < k + kGroupColumns; i++) {
      largest = std::fmax(largest, std::fabs(x[i]));
      if (!std::isfinite(x[i])) finite = false;
    }
    const float inverse = largest < 0x1p-100f ? 0 : 127 / largest;
    const float scale = !finite ? NAN : largest < 0x1p-100f ? 0 : largest / 127;
    for (int i = k; i < k + kGroupColumns; i++)
      result[i] = finite ? double{scale} * std::nearbyint(x[i] * inverse) : double{scale};
  }
  return result;
}

// y (rows of x) for row n of W.
std::vector<double> products(const std::vector<std::vector<double>>& x, const LinearOutput& output, int n) {
  std::vector<double> weights(output.weight.columns), sums;
  for (size_t k = 0; k < weights.size(); k++) weights[k] = referenceWeight(output.weight, n, static_cast<int>(k));
  for (const std::vector<double>& row : x) {
    double sum = output.bias == nullptr ? 0 : output.bias[n];
    for (size_t k = 0; k < weights.size(); k++) sum += row[k] * weights[k];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

double referenceWeight(const LinearWeight& weight, int row, int column) {
  const BlockLayout layout = layoutOf(weight.format);
  const int n = row % kPanelRows, inRecord = column % layout.recordColumns();
  const int group = inRecord / kGroupColumns, k = column % kGroupColumns;
  const uint8_t* record = weight.panels + row / kPanelRows * bytesOfPanel(weight.format, weight.columns) +
                          static_cast<size_t>(column / layout.recordColumns()) * layout.recordBytes;
  const uint8_t* codes = record + layout.codesAt + group * layout.groupBytes;
  const int code = codeAt(codes, layout.bits, k / 4 * 64 + n * 4 + k % 4) - layout.zero;
  const double d = halfAt(record + 2 * n);
  const double m = layout.minimum ? halfAt(record + 32 + 2 * n) : 0;
  if (layout.groups == 1) return d * code + m;
  const uint8_t* scales = record + layout.scalesAt;
  if (layout.halves) return d * static_cast<int8_t>(scales[inRecord / 16 * 16 + n]) * code;
  return d * scales[group * 16 + n] * code - m * scales[128 + group * 16 + n];
}

void referenceLinear(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine,
                     Activations activations) {
  const int columns = outputs[0].weight.columns;
  std::vector<std::vector<double>> given;
  for (int r = 0; r < rows; r++) {
    const float* from = x + static_cast<int64_t>(r) * columns;
    given.push_back(activations == Activations::kInt8 ? quantized(from, columns)
                                                      : std::vector<double>(from, from + columns));
  }
  for (int o = 0; o < (combine == Combine::kSwiGlu ? 1 : count); o++)
    for (int n = 0; n < outputs[o].weight.rows; n++) {
      std::vector<double> y = products(given, outputs[o], n);
      if (combine == Combine::kSwiGlu) {
        const std::vector<double> factor = products(given, outputs[1], n);
        for (int r = 0; r < rows; r++) y[r] = y[r] / (1 + std::exp(-y[r])) * factor[r];
      }
      for (int r = 0; r < rows; r++)
        outputs[o].out[static_cast<int64_t>(r) * outputs[o].weight.rows + n] = static_cast<float>(y[r]);
    }
}

}  // namespace pocket
