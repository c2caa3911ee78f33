#include "linear/weight_row.h"

#include "cpu/half.h"

namespace pocket {

namespace {

float halfAt(const uint8_t* from) { return ofHalf(static_cast<uint16_t>(from[0] | from[1] << 8)); }

// Reads the 32 codes of row n of a group. Four consecutive columns are at consecutive positions.
void readCodes(const uint8_t* group, int bits, int n, int* codes) {
  for (int quad = 0; quad < kGroupColumns / 4; quad++) {
    const int position = quad * 64 + n * 4;
    for (int i = 0; i < 4; i++) {
      const int p = position + i;
      int code = bits == 8 ? group[p] : group[p % 256] >> (p < 256 ? 0 : 4) & 15;
      if (bits == 5) code |= (group[256 + p / 8] >> p % 8 & 1) << 4;
      if (bits == 6) code |= (group[256 + p % 128] >> p / 128 * 2 & 3) << 4;
      codes[quad * 4 + i] = code;
    }
  }
}

}  // namespace

void readWeightRow(const LinearWeight& weight, int row, float* out) {
  const BlockLayout layout = layoutOf(weight.format);
  const int n = row % kPanelRows;
  const uint8_t* record =
      weight.panels + static_cast<size_t>(row / kPanelRows) * bytesOfPanel(weight.format, weight.columns);
  int codes[kGroupColumns];
  for (int column = 0; column < weight.columns; column += layout.recordColumns(), record += layout.recordBytes) {
    const float d = halfAt(record + 2 * n);
    const float m = layout.minimum ? halfAt(record + 2 * (kPanelRows + n)) : 0;
    const uint8_t* scales = record + layout.scalesAt + n;
    for (int g = 0; g < layout.groups; g++, out += kGroupColumns) {
      readCodes(record + layout.codesAt + g * layout.groupBytes, layout.bits, n, codes);
      // Products of f16 and eight-bit integers are exact in f32; the order of operations is that of dequantise.ts.
      float first = d, second = d, offset = m;
      if (layout.halves) {
        first = d * static_cast<float>(static_cast<int8_t>(scales[(2 * g) * kPanelRows]));
        second = d * static_cast<float>(static_cast<int8_t>(scales[(2 * g + 1) * kPanelRows]));
      } else if (layout.groups > 1) {
        first = second = d * static_cast<float>(scales[g * kPanelRows]);
        offset = -(m * static_cast<float>(scales[(8 + g) * kPanelRows]));
      }
      for (int k = 0; k < kGroupColumns; k++) {
        const float product = (k < kGroupColumns / 2 ? first : second) * static_cast<float>(codes[k] - layout.zero);
        out[k] = layout.minimum ? product + offset : product;
      }
    }
  }
}

}  // namespace pocket
