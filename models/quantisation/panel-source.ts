// What panels.ts packs: the codes of a matrix, its f16 scales and minima, and the sub-scales of k-quants, row after row.
// They are either the blocks of a GGUF tensor unchanged, or f32 values quantised to q8_0 or q4_1.
import { type BlockType, blockTypes, readBlocks, type SubScales } from "./block-types.ts";
import { f16Bits, f16Values } from "./half.ts";
import { searched4, symmetric8 } from "./requantise.ts";

/** Arrays in the order of the values; a block is the format's record (32 or 256 columns) of one row. */
export interface PanelSource extends Partial<SubScales> {
  /** One byte per value, unsigned; begins at a multiple of four bytes of its buffer. */
  readonly codes: Uint8Array;
  /** Raw f16 bits, one per block. */
  readonly scales: Uint16Array;
  /** Raw f16 bits, one per block, where the format has a minimum. */
  readonly minima?: Uint16Array;
  /** 0: the values equal the source's, bit for bit. */
  readonly maxErrorSteps: number;
}

/** `count` values of a GGUF tensor, unchanged. */
export function fileBlocks(type: BlockType, bytes: Uint8Array, count: number): PanelSource {
  const { codes } = readBlocks(type, bytes, count);
  const { bytes: step, scaleAt, minimumAt, sub } = blockTypes[type];
  const blocks = bytes.length / step;
  const halves = (at: number) =>
    Uint16Array.from({ length: blocks }, (_, b) => bytes[b * step + at]! | (bytes[b * step + at + 1]! << 8));
  return {
    codes,
    scales: halves(scaleAt),
    ...(minimumAt !== undefined && { minima: halves(minimumAt) }),
    ...sub?.read(bytes, blocks),
    maxErrorSteps: 0,
  };
}

/** A type with one scale per block and a zero point, as q8_0: the same scales, the codes shifted to around 128. */
export function recodeToQ8_0(type: BlockType, bytes: Uint8Array, count: number): PanelSource {
  const source = fileBlocks(type, bytes, count);
  const shift = 128 - blockTypes[type].zeroPoint!;
  for (let i = 0; i < count; i++) source.codes[i] = source.codes[i]! + shift;
  return source;
}

/** Values rounded to q8_0, within half a step. A block beyond the range of f16 scales gets an infinite scale. */
export function quantiseQ8_0(values: Float32Array): PanelSource {
  const { codes, scales, maxErrorSteps } = symmetric8(values, "f16");
  return { codes, scales: Uint16Array.from(scales, f16Bits), maxErrorSteps };
}

/** Values in q4_1 by the search of requantise.ts; the scale that it finds, then its minimum, are rounded to f16. */
export function quantiseQ4_1(values: Float32Array): PanelSource {
  const { codes, scales, zeroPoints, maxErrorSteps } = searched4(values);
  const halves = Uint16Array.from(scales, f16Bits);
  const minima = Uint16Array.from(halves, (half, b) => f16Bits(-f16Values[half]! * zeroPoints![b]!));
  return { codes, scales: halves, minima, maxErrorSteps };
}
