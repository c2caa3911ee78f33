// Random layers for the tests of linear layers: weights of any format with plausible scales, rows of x, and the sum
// of what could be off by rounding. Padding rows of a panel hold garbage, so that nothing may depend on them.
#pragma once

#include <cstring>
#include <random>

#include "linear/linear.h"

namespace scene {

// Weights of about 1 in magnitude.
inline std::vector<uint8_t> randomWeights(pocket::BlockFormat format, int rows, int columns, std::mt19937& random) {
  std::vector<uint8_t> bytes(pocket::panelBytes(format, rows, columns));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  const pocket::BlockLayout layout = pocket::layoutOf(format);
  for (size_t record = 0; record < bytes.size(); record += layout.recordBytes)
    for (int i = 0; i < layout.scalesAt; i += 2) {
      // exponent 8 to 10 of a half: 2^-7 to 2^-5, smaller by the scales' 2^6 where there are some
      const unsigned exponent = (layout.groups == 1 ? 8 : 2) + random() % 3;
      const unsigned half = (random() & 0x8000u) | exponent << 10 | (random() & 0x3ffu);
      bytes[record + i] = static_cast<uint8_t>(half);
      bytes[record + i + 1] = static_cast<uint8_t>(half >> 8);
    }
  return bytes;
}

inline std::vector<float> randomRows(int rows, int columns, std::mt19937& random) {
  std::normal_distribution<float> draw;
  std::vector<float> x(static_cast<size_t>(rows) * columns);
  for (float& number : x) number = draw(random);
  return x;
}

inline pocket::ParallelFor oneThread() {
  return [](int count, const std::function<void(int)>& body) {
    for (int i = 0; i < count; i++) body(i);
  };
}

struct Layer {
  Layer(pocket::BlockFormat layerFormat, int layerRows, int layerColumns, unsigned seed)
      : format(layerFormat), rows(layerRows), columns(layerColumns) {
    std::mt19937 random(seed);
    bytes = randomWeights(format, rows, columns, random);
    bias = randomRows(1, rows, random);
  }
  pocket::LinearWeight weight() const { return {bytes.data(), rows, columns, format}; }
  double largest() const {
    double found = 0;
    for (int n = 0; n < rows; n++)
      for (int k = 0; k < columns; k++) found = std::max(found, std::fabs(pocket::referenceWeight(weight(), n, k)));
    return found;
  }

  pocket::BlockFormat format;
  int rows;
  int columns;
  std::vector<uint8_t> bytes;
  std::vector<float> bias;
};

}  // namespace scene
