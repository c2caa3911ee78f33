// Operators over packed weights that are not products: rows of an embedding against the layout read by the
// letter, and the norm of the residual stream against two plain loops in double.
#include "linear/weight_row.h"
#include "linear/rms_norm.h"
#include "linear/scene.h"
#include "support/check.h"

using namespace pocket;

TEST("a row of an embedding is the row of W that its panels hold, in every format") {
  for (const BlockFormat format : kBlockFormats) {
    const scene::Layer layer(format, 37, 512, 11);
    std::vector<float> row(layer.columns + 1, -7);
    for (const int n : {0, 15, 16, 36}) {
      readWeightRow(layer.weight(), n, row.data());
      for (int k = 0; k < layer.columns; k++) {
        const double wanted = referenceWeight(layer.weight(), n, k);
        // A product and a sum, each rounded to f32; the terms of a difference are larger than it.
        CHECK_NEAR(row[k], wanted, 1e-6 * (std::fabs(wanted) + layer.largest()));
      }
      CHECK_EQ(row[layer.columns], -7.0f);
    }
  }
}

TEST("an embedding's halves may be subnormal or negative") {
  std::vector<uint8_t> bytes(panelBytes(BlockFormat::kQ8_0, 16, 32), 129);
  const LinearWeight weight{bytes.data(), 16, 32, BlockFormat::kQ8_0};
  const unsigned halves[] = {0x0001, 0x8001, 0x03ff, 0x0400, 0xbc00, 0x0000};
  const double values[] = {0x1p-24, -0x1p-24, 1023 * 0x1p-24, 0x1p-14, -1, 0};
  for (int n = 0; n < 6; n++) {
    bytes[2 * n] = static_cast<uint8_t>(halves[n]);
    bytes[2 * n + 1] = static_cast<uint8_t>(halves[n] >> 8);
    float row[32];
    readWeightRow(weight, n, row);
    CHECK_EQ(row[31], static_cast<float>(values[n]));
  }
}

TEST("a norm adds the branch, keeps the sum and scales it to its gain") {
  std::mt19937 random(3);
  for (const int columns : {1, 15, 16, 896, 901}) {
    const std::vector<float> x = scene::randomRows(1, columns, random);
    const std::vector<float> branch = scene::randomRows(1, columns, random);
    const std::vector<float> gain = scene::randomRows(1, columns, random);
    for (const bool adds : {false, true}) {
      std::vector<float> sum(columns), normed(columns);
      rmsNorm(x.data(), adds ? branch.data() : nullptr, gain.data(), 1e-6f, columns, sum.data(), normed.data());
      double squares = 0;
      for (const float value : sum) squares += static_cast<double>(value) * value;
      const double scale = 1 / std::sqrt(squares / columns + 1e-6);
      for (int c = 0; c < columns; c++) {
        CHECK_EQ(sum[c], adds ? x[c] + branch[c] : x[c]);
        CHECK_NEAR(normed[c], sum[c] * scale * gain[c], 2e-6 * (1 + std::fabs(sum[c] * scale * gain[c])));
      }
      std::vector<float> again(columns);
      rmsNorm(x.data(), adds ? branch.data() : nullptr, gain.data(), 1e-6f, columns, nullptr, again.data());
      CHECK(again == normed);
    }
  }
}
