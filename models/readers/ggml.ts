// The element types of GGUF tensors: their names by the number in the file, values and bytes of a block. A type that is not
// read has a name only, for the error message. Block layouts are in quantisation/block-types.ts.
import { type BlockType, blockTypes } from "../quantisation/block-types.ts";

/** Types without blocks: one number after another. */
export type PlainType = "F32" | "F16" | "BF16";
export type TensorType = PlainType | BlockType;

export interface TensorLayout {
  /** Values in a block; 1 for plain types. */
  readonly values: number;
  /** Bytes of a block. */
  readonly bytes: number;
}

export const tensorLayouts: Readonly<Record<TensorType, TensorLayout>> = {
  F32: { values: 1, bytes: 4 },
  F16: { values: 1, bytes: 2 },
  BF16: { values: 1, bytes: 2 },
  ...blockTypes,
};

/** ggml's type numbers; missing numbers were removed from the format. */
const typeNames: Readonly<Record<number, string>> = {
  0: "F32",
  1: "F16",
  2: "Q4_0",
  3: "Q4_1",
  6: "Q5_0",
  7: "Q5_1",
  8: "Q8_0",
  9: "Q8_1",
  10: "Q2_K",
  11: "Q3_K",
  12: "Q4_K",
  13: "Q5_K",
  14: "Q6_K",
  15: "Q8_K",
  16: "IQ2_XXS",
  17: "IQ2_XS",
  18: "IQ3_XXS",
  19: "IQ1_S",
  20: "IQ4_NL",
  21: "IQ3_S",
  22: "IQ2_S",
  23: "IQ4_XS",
  24: "I8",
  25: "I16",
  26: "I32",
  27: "I64",
  28: "F64",
  29: "IQ1_M",
  30: "BF16",
  34: "TQ1_0",
  35: "TQ2_0",
  39: "MXFP4",
};

/** Undefined: the type is not read. */
export function tensorType(number: number): TensorType | undefined {
  const name = typeNames[number];
  return name !== undefined && Object.hasOwn(tensorLayouts, name) ? (name as TensorType) : undefined;
}

export function tensorTypeNumber(type: TensorType): number {
  return Number(Object.entries(typeNames).find(([, name]) => name === type)![0]);
}

/** A name for error messages. */
export function tensorTypeName(number: number): string {
  return typeNames[number] ?? `number ${number}`;
}

export function isPlain(type: TensorType): type is PlainType {
  return tensorLayouts[type].values === 1;
}

/** Bytes of `count` values; `count` is a multiple of the block. */
export function bytesOf(type: TensorType, count: number): number {
  const { values, bytes } = tensorLayouts[type];
  return (count / values) * bytes;
}
