// Which container of ONNX Runtime's own operators (`linear: ort`) a matrix is stored in, by the type it has in
// the file, the weight format that was asked for, and what it does. The choices in one table:
//
//   in the file        exact                     int8              int4 (linear)     int4 (vocabulary)
//   Q8_0 Q5_0          8 bits, block 32, kept    the same          searched 4 bits   as exact
//   Q6_K               8 bits, block 16, kept    symmetric 8 bits  searched 4 bits   as exact
//   Q4_0               4 bits, block 32, kept *  8 bits, kept      searched 4 bits   8 bits, kept
//   Q4_1 Q5_1 Q4_K Q5_K  8 bits, offsets fitted  symmetric 8 bits  searched 4 bits   as exact
//   F16 BF16 F32       8 bits, rounded           symmetric 8 bits  searched 4 bits   as exact
//
// "kept" are the file's own integers and scales, so the values are bit-true; the rest has blocks of 32.
// Fitted (offset-blocks.ts) and rounded ones have zero points.
// * 8 bits where the matrix sees the vocabulary. Under f32 every matrix is widened.

import type { WeightFormat } from "../manifest.ts";
import { type BlockType, isPlain, type TensorType } from "../readers/ggml.ts";
import { blockForms, readBlocks } from "./block-types.ts";
import { type Convert, throughFloats } from "./dequantise.ts";
import { fitOffsets } from "./offset-blocks.ts";
import { affine8, type Requantised, requantisedBlock, searched4, symmetric8 } from "./requantise.ts";

/** What a matrix does: those that see the vocabulary stay at 8 bits under every quantised format. */
export type MatrixRole = "linear" | "vocabulary";

export interface BlockContainer {
  readonly bits: 4 | 8;
  readonly block: 16 | 32;
  readonly zeroPoints: boolean;
  /** How the manifest calls it. */
  readonly stored: string;
  readonly convert: Convert<Requantised>;
}

export function chooseContainer(
  type: TensorType,
  format: Exclude<WeightFormat, "f32">,
  role: MatrixRole,
): BlockContainer {
  if (format === "int4" && role === "linear")
    return requantised(type, 4, "int4 block 32 zero points", searched4);
  if (!isPlain(type)) {
    const { block, centre } = blockForms[type];
    if (centre !== undefined && (format !== "int8" || block === requantisedBlock))
      return kept(type, centre, type === "Q4_0" && format === "exact" && role === "linear" ? 4 : 8);
  }
  if (format === "int8") return requantised(type, 8, "int8 block 32", symmetric8);
  if (!isPlain(type)) return fitted(type);
  return requantised(type, 8, "int8 block 32 zero points", affine8);
}

function requantised(
  type: TensorType,
  bits: 4 | 8,
  stored: string,
  quantise: (values: Float32Array) => Requantised,
): BlockContainer {
  return {
    bits,
    block: requantisedBlock,
    zeroPoints: quantise !== symmetric8,
    stored,
    convert: throughFloats(type, quantise),
  };
}

function fitted(type: BlockType): BlockContainer {
  return {
    bits: 8,
    block: requantisedBlock,
    zeroPoints: true,
    stored: "int8 block 32 zero points",
    convert: (bytes, count, check) => {
      const blocks = readBlocks(type, bytes, count);
      check(blocks.scales);
      check(blocks.offsets);
      return fitOffsets(blocks, type === "Q5_1" || type === "Q5_K" ? 31 : 15);
    },
  };
}

/** The file's own integers, moved to the container's default zero point. */
function kept(type: BlockType, centre: number, bits: 4 | 8): BlockContainer {
  const { block } = blockForms[type];
  const shift = 2 ** (bits - 1) - centre;
  return {
    bits,
    block,
    zeroPoints: false,
    stored: `int${bits} block ${block}`,
    convert: (bytes, count, check) => {
      const { codes, scales } = readBlocks(type, bytes, count);
      check(scales);
      if (shift !== 0) for (let i = 0; i < codes.length; i++) codes[i] = codes[i]! + shift;
      return { codes, scales, maxErrorSteps: 0 };
    },
  };
}
