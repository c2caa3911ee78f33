// The element types of GGUF tensors, by the number that stands in the file: how many values a block holds and
// how many bytes it takes. Types that are known but not read here have a name only, so that a refusal can say
// it. The layouts inside a block are in blocks.ts.

/** Types whose values are real numbers, one after another. */
export type PlainType = "F32" | "F16" | "BF16";
/** Types of blocks: integers with a scale, and for some an offset. */
export type BlockType = "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1" | "Q8_0" | "Q4_K" | "Q5_K" | "Q6_K";
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
  Q4_0: { values: 32, bytes: 18 },
  Q4_1: { values: 32, bytes: 20 },
  Q5_0: { values: 32, bytes: 22 },
  Q5_1: { values: 32, bytes: 24 },
  Q8_0: { values: 32, bytes: 34 },
  Q4_K: { values: 256, bytes: 144 },
  Q5_K: { values: 256, bytes: 176 },
  Q6_K: { values: 256, bytes: 210 },
};

/** Names by type number; holes were removed from the format. */
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

/** The type with this number, or undefined where it is not one that we read. */
export function tensorType(number: number): TensorType | undefined {
  const name = typeNames[number];
  return name !== undefined && Object.hasOwn(tensorLayouts, name) ? (name as TensorType) : undefined;
}

/** The number of a type, for writing files. */
export function tensorTypeNumber(type: TensorType): number {
  return Number(Object.entries(typeNames).find(([, name]) => name === type)![0]);
}

/** How a refusal calls the type with this number. */
export function tensorTypeName(number: number): string {
  return typeNames[number] ?? `number ${number}`;
}

export function isPlain(type: TensorType): type is PlainType {
  return tensorLayouts[type].values === 1;
}

/** Bytes of `count` values; count is a multiple of the block. */
export function bytesOf(type: TensorType, count: number): number {
  const { values, bytes } = tensorLayouts[type];
  return (count / values) * bytes;
}
