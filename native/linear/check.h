// What a call of a linear layer must satisfy before anything is written: shapes that fit each other, and somewhere for
// the results to go. Throws BAD_ARGUMENT with the numbers; knows nothing of kernels.
#pragma once

#include "error.h"
#include "linear/linear.h"

namespace pocket {

inline void checkShapes(const float* x, int rows, const LinearOutput* outputs, int count, Combine combine) {
  if (rows < 0 || count < 1 || outputs == nullptr || (rows > 0 && x == nullptr))
    throw error("BAD_ARGUMENT", "a linear layer of %d rows and %d outputs: give x, and one output or more", rows,
                count);
  const int columns = outputs[0].weight.columns;
  for (int i = 0; i < count; i++) {
    const LinearWeight& weight = outputs[i].weight;
    const int unit = layoutOf(weight.format).recordColumns();
    if (weight.rows < 1 || weight.columns < unit || weight.columns % unit != 0 || weight.columns != columns ||
        weight.panels == nullptr)
      throw error("BAD_ARGUMENT", "output %d of a linear layer is a %s matrix of %d x %d beside one of %d columns: "
                  "columns come in %ds and are the same for all outputs", i, name(weight.format), weight.rows,
                  weight.columns, columns, unit);
    if (rows > 0 && outputs[i].out == nullptr && !(combine == Combine::kSwiGlu && i == 1))
      throw error("BAD_ARGUMENT", "output %d of a linear layer has nowhere to go", i);
  }
  if (combine == Combine::kSwiGlu && (count != 2 || outputs[0].weight.rows != outputs[1].weight.rows))
    throw error("BAD_ARGUMENT", "a gate and its factor are two outputs of equal shape; here are %d, the first of %d "
                "rows, the last of %d", count, outputs[0].weight.rows, outputs[count - 1].weight.rows);
}

}  // namespace pocket
