// Where the numbers of a panel come from: a matrix's codes, f16 scales and minima, and the integers that k formats
// scale them by, row after row. Two makers: the block formats of GGUF as they stand, and f32 values rounded to
// q8_0 or q4_1. How the kernels want them ordered is panels.ts's work.

import { type BlockType, tensorLayouts } from "../readers/ggml.ts";
import { readBlocks } from "./block-types.ts";
import { f16Bits, f16Values } from "./half.ts";
import { searched4, symmetric8 } from "./requantise.ts";

/** Arrays in the order of the values; "block" is the format's record (32 or 256 columns) of one row. */
export interface PanelSource {
  /** One byte a value, unsigned; on a multiple of four bytes of its buffer. */
  readonly codes: Uint8Array;
  /** Raw f16 bits, one a block. */
  readonly scales: Uint16Array;
  /** Raw f16 bits, one a block, where the format has a minimum. */
  readonly minima?: Uint16Array;
  /** k formats: 8 or 16 bytes a block (q6_k's are signed). */
  readonly subScales?: Uint8Array;
  /** q4_k and q5_k: 8 bytes a block. */
  readonly subMinima?: Uint8Array;
  /** 0 where the values are the source's, bit for bit. */
  readonly maxErrorSteps: number;
}

/** The blocks of a GGUF tensor, untouched. `count` values. */
export function fileBlocks(type: BlockType, bytes: Uint8Array, count: number): PanelSource {
  const { codes } = readBlocks(type, bytes, count);
  const step = tensorLayouts[type].bytes;
  const blocks = bytes.length / step;
  const halves = (at: number) =>
    Uint16Array.from({ length: blocks }, (_, b) => bytes[b * step + at]! | (bytes[b * step + at + 1]! << 8));
  const base = { codes, maxErrorSteps: 0 };
  switch (type) {
    case "Q4_1":
    case "Q5_1":
      return { ...base, scales: halves(0), minima: halves(2) };
    case "Q4_K":
    case "Q5_K":
      return { ...base, scales: halves(0), minima: halves(2), ...sixBitPairs(bytes, step, blocks) };
    case "Q6_K": {
      const subScales = new Uint8Array(blocks * 16);
      for (let b = 0; b < blocks; b++) subScales.set(bytes.subarray(b * step + 192, b * step + 208), b * 16);
      return { ...base, scales: halves(208), subScales };
    }
    default:
      return { ...base, scales: halves(0) };
  }
}

/** The eight 6-bit scales and minima in bytes 4 … 16 of each block. */
function sixBitPairs(bytes: Uint8Array, step: number, blocks: number) {
  const subScales = new Uint8Array(blocks * 8);
  const subMinima = new Uint8Array(blocks * 8);
  for (let b = 0; b < blocks; b++) {
    const at = b * step + 4;
    for (let group = 0; group < 4; group++) {
      const [s, m, rest] = [bytes[at + group]!, bytes[at + 4 + group]!, bytes[at + 8 + group]!];
      subScales[b * 8 + group] = s & 63;
      subMinima[b * 8 + group] = m & 63;
      subScales[b * 8 + 4 + group] = (rest & 15) | ((s >>> 6) << 4);
      subMinima[b * 8 + 4 + group] = (rest >>> 4) | ((m >>> 6) << 4);
    }
  }
  return { subScales, subMinima };
}

/** Q4_0, Q5_0 and Q8_0 under q8_0: the same scales, the codes around 128. */
export function widenedBlocks(
  type: BlockType,
  centre: number,
  bytes: Uint8Array,
  count: number,
): PanelSource {
  const source = fileBlocks(type, bytes, count);
  const shift = 128 - centre;
  for (let i = 0; i < count; i++) source.codes[i] = source.codes[i]! + shift;
  return source;
}

/** Values rounded to q8_0: within half a step. A block beyond the range of f16 scales gets an infinite one. */
export function roundedTo8(values: Float32Array): PanelSource {
  const { codes, scales, maxErrorSteps } = symmetric8(values, "f16");
  return { codes, scales: Uint16Array.from(scales, f16Bits), maxErrorSteps };
}

/** Values rounded to q4_1 by the search of requantise.ts; the scale found and its minimum are then rounded to f16. */
export function roundedTo4(values: Float32Array): PanelSource {
  const { codes, scales, zeroPoints, maxErrorSteps } = searched4(values);
  const halves = Uint16Array.from(scales, f16Bits);
  const minima = Uint16Array.from(halves, (half, b) => f16Bits(-f16Values[half]! * zeroPoints![b]!));
  return { codes, scales: halves, minima, maxErrorSteps };
}
