// How a matrix is stored under each weight format that `pocket pull --weights` takes: a weight format is added in the two
// tables below, and to the list in manifest.ts. The first table is for pocket::Linear, which reads packed panels
// (panels.ts); the second for ONNX Runtime's MatMulNBits and GatherBlockQuantized (`linear: ort`).
//
// pocket::Linear:
//   type in the file          exact              int8                int4 (linear)    int4 (vocabulary)
//   Q4_0 Q5_0 Q8_0            as in the file     q8_0, same codes    q4_1, searched   as exact
//   Q4_1 Q5_1 Q4_K Q5_K Q6_K  as in the file     q8_0, rounded       q4_1, searched   as exact
//   F16 BF16 F32              q8_0, rounded      q8_0, rounded       q4_1, searched   as exact
//
// MatMulNBits:
//   Q8_0 Q5_0                 8 bits, same codes             8 bits, same codes  4 bits, searched  as exact
//   Q4_0                      4 bits (vocabulary 8), same    8 bits, same codes  4 bits, searched  8 bits, same codes
//   Q6_K                      8 bits, block 16, same codes   8 bits, symmetric   4 bits, searched  as exact
//   Q4_1 Q5_1 Q4_K Q5_K       8 bits, offsets fitted         8 bits, symmetric   4 bits, searched  as exact
//   F16 BF16 F32              8 bits, zero points            8 bits, symmetric   4 bits, searched  as exact
//
// "same codes": the file's integers and scales, so the values are equal bit for bit. Blocks have 32 values if nothing
// else is said. Under f32 every matrix is widened and neither table is asked.
import type { WeightFormat } from "../manifest.ts";
import { isPlain, type TensorType } from "../readers/ggml.ts";
import { type BlockType, blockTypes, readBlocks } from "./block-types.ts";
import { type Convert, throughFloats } from "./dequantise.ts";
import { fitOffsets } from "./offset-blocks.ts";
import { fileBlocks, type PanelSource, quantiseQ4_1, quantiseQ8_0, recodeToQ8_0 } from "./panel-source.ts";
import { type PanelFormat, panelFormatOf } from "./panels.ts";
import { affine8, type Requantised, requantisedBlock, searched4, symmetric8 } from "./requantise.ts";

/** What a matrix does. Embedding and LM head ("vocabulary") stay at 8 bits or the file's bits under every format. */
export type MatrixRole = "linear" | "vocabulary";

/** Stored for pocket::Linear. */
export interface PanelStorage {
  readonly format: PanelFormat;
  readonly convert: Convert<PanelSource>;
}

/** Stored for MatMulNBits: value = scale * (code - zero point). */
export interface NBitsStorage {
  readonly bits: 4 | 8;
  readonly block: 16 | 32;
  /** False: every zero point is MatMulNBits' default, 2^(bits - 1). */
  readonly zeroPoints: boolean;
  /** The storage's name in the manifest. */
  readonly stored: string;
  readonly convert: Convert<Requantised>;
}

type QuantisedFormat = Exclude<WeightFormat, "f32">;
type Rule<Storage> = (type: TensorType, role: MatrixRole) => Storage;

export const panelStorage: Readonly<Record<QuantisedFormat, Rule<PanelStorage>>> = {
  exact: (type) => {
    if (isPlain(type)) return quantisedPanels(type, "q8_0", quantiseQ8_0);
    return { format: panelFormatOf(type), convert: (bytes, count) => fileBlocks(type, bytes, count) };
  },
  int8: (type) => {
    // A block of q8_0 has one scale and no offset: only the file's blocks of that kind keep their codes.
    if (!hasBlocksOfOneScale(type)) return quantisedPanels(type, "q8_0", quantiseQ8_0);
    return { format: "q8_0", convert: (bytes, count) => recodeToQ8_0(type, bytes, count) };
  },
  int4: (type, role) =>
    role === "linear" ? quantisedPanels(type, "q4_1", quantiseQ4_1) : panelStorage.exact(type, role),
};

export const nBitsStorage: Readonly<Record<QuantisedFormat, Rule<NBitsStorage>>> = {
  exact: (type, role) => {
    if (isPlain(type)) return requantised(type, 8, "int8 block 32 zero points", affine8);
    if (blockTypes[type].zeroPoint === undefined) return fittedOffsets(type);
    return sameCodes(type, type === "Q4_0" && role === "linear" ? 4 : 8);
  },
  int8: (type) => {
    if (hasBlocksOfOneScale(type)) return sameCodes(type, 8);
    return requantised(type, 8, "int8 block 32", symmetric8);
  },
  int4: (type, role) =>
    role === "linear"
      ? requantised(type, 4, "int4 block 32 zero points", searched4)
      : nBitsStorage.exact(type, role),
};

/** Blocks of 32 codes with one scale and a zero point. */
function hasBlocksOfOneScale(type: TensorType): type is BlockType {
  return !isPlain(type) && blockTypes[type].zeroPoint !== undefined && blockTypes[type].group === 32;
}

function quantisedPanels(
  type: TensorType,
  format: PanelFormat,
  quantise: (values: Float32Array) => PanelSource,
): PanelStorage {
  return { format, convert: throughFloats(type, quantise) };
}

function requantised(
  type: TensorType,
  bits: 4 | 8,
  stored: string,
  quantise: (values: Float32Array) => Requantised,
): NBitsStorage {
  return {
    bits,
    block: requantisedBlock,
    zeroPoints: quantise !== symmetric8,
    stored,
    convert: throughFloats(type, quantise),
  };
}

function fittedOffsets(type: BlockType): NBitsStorage {
  return {
    bits: 8,
    block: requantisedBlock,
    zeroPoints: true,
    stored: "int8 block 32 zero points",
    convert: (bytes, count, check) => {
      const blocks = readBlocks(type, bytes, count);
      check(blocks.scales);
      check(blocks.offsets);
      return fitOffsets(blocks, blockTypes[type].bits === 5 ? 31 : 15);
    },
  };
}

/** The file's codes, shifted to MatMulNBits' default zero point. */
function sameCodes(type: BlockType, bits: 4 | 8): NBitsStorage {
  const { group, zeroPoint } = blockTypes[type];
  const shift = 2 ** (bits - 1) - zeroPoint!;
  return {
    bits,
    block: group,
    zeroPoints: false,
    stored: `int${bits} block ${group}`,
    convert: (bytes, count, check) => {
      const { codes, scales } = readBlocks(type, bytes, count);
      check(scales);
      if (shift !== 0) for (let i = 0; i < codes.length; i++) codes[i] = codes[i]! + shift;
      return { codes, scales, maxErrorSteps: 0 };
    },
  };
}
