// Which panel format a matrix is stored in, by the type it has in the file, the weight format that was asked for,
// and what it does; containers.ts is the same table for ONNX Runtime's own operators. The choices:
//
//   in the file            exact              int8                int4 (linear)    int4 (vocabulary)
//   Q4_0 Q5_0 Q8_0         as in the file     q8_0, its integers  q4_1, searched   as exact
//   Q4_1 Q5_1 Q4_K Q5_K Q6_K  as in the file  q8_0, rounded       q4_1, searched   as exact
//   F16 BF16 F32           q8_0, rounded      q8_0, rounded       q4_1, searched   as exact

import type { WeightFormat } from "../manifest.ts";
import { isPlain, type TensorType } from "../readers/ggml.ts";
import { blockForms } from "./block-types.ts";
import { type Convert, throughFloats } from "./dequantise.ts";
import { fileBlocks, type PanelSource, roundedTo4, roundedTo8, widenedBlocks } from "./panel-source.ts";
import type { PanelFormat } from "./panels.ts";
import type { MatrixRole } from "./weight-formats.ts";

export interface PanelContainer {
  readonly format: PanelFormat;
  readonly convert: Convert<PanelSource>;
}

export function choosePanels(
  type: TensorType,
  weights: Exclude<WeightFormat, "f32">,
  role: MatrixRole,
): PanelContainer {
  if (weights === "int4" && role === "linear") return rounded(type, "q4_1", roundedTo4);
  if (isPlain(type)) return rounded(type, "q8_0", roundedTo8);
  if (weights !== "int8")
    return {
      format: type.toLowerCase() as PanelFormat,
      convert: (bytes, count) => fileBlocks(type, bytes, count),
    };
  const { block, centre } = blockForms[type];
  // Only blocks of 32 have one scale where q8_0 has one.
  if (centre === undefined || block !== 32) return rounded(type, "q8_0", roundedTo8);
  return { format: "q8_0", convert: (bytes, count) => widenedBlocks(type, centre, bytes, count) };
}

function rounded(
  type: TensorType,
  format: PanelFormat,
  quantise: (values: Float32Array) => PanelSource,
): PanelContainer {
  return {
    format,
    convert: throughFloats(type, quantise),
  };
}
