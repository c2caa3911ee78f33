// The block formats of GGUF, taken apart into three arrays that all of them share:
//
//   value = scale[b] * (code - centre)      Q4_0 Q5_0 Q8_0 Q6_K     "centred"
//   value = scale[b] * code + offset[b]     Q4_1 Q5_1 Q4_K Q5_K     "offset"
//
// where b counts blocks of 32 codes (16 for Q6_K), in the order of the values. Nothing is rounded here: the
// scales are products of at most 19 significant bits, so an f32 holds them. What becomes of the three arrays
// (f32 values, another container) is not decided here.
import type { BlockType } from "../readers/ggml.ts";
import { f16Values } from "./half.ts";

export interface BlockForm {
  /** Codes per scale. */
  readonly block: 16 | 32;
  /** Undefined for the types that have an offset. */
  readonly centre: number | undefined;
}

export const blockForms: Readonly<Record<BlockType, BlockForm>> = {
  Q4_0: { block: 32, centre: 8 },
  Q5_0: { block: 32, centre: 16 },
  Q8_0: { block: 32, centre: 128 },
  Q6_K: { block: 16, centre: 32 },
  Q4_1: { block: 32, centre: undefined },
  Q5_1: { block: 32, centre: undefined },
  Q4_K: { block: 32, centre: undefined },
  Q5_K: { block: 32, centre: undefined },
};

export interface Blocks {
  readonly codes: Uint8Array;
  readonly scales: Float32Array;
  /** All zero for centred types. */
  readonly offsets: Float32Array;
}

/** Takes `count` values apart; `count` is a multiple of the type's block in the file. */
export function readBlocks(type: BlockType, bytes: Uint8Array, count: number): Blocks {
  const scaleCount = count / blockForms[type].block;
  const blocks: Blocks = {
    codes: new Uint8Array(count),
    scales: new Float32Array(scaleCount),
    offsets: new Float32Array(scaleCount),
  };
  readers[type](bytes, blocks);
  return blocks;
}

const readers: Readonly<Record<BlockType, (bytes: Uint8Array, blocks: Blocks) => void>> = {
  Q4_0: (bytes, blocks) => readNibbles(bytes, blocks, { bytes: 18, offset: false, fifth: false }),
  Q4_1: (bytes, blocks) => readNibbles(bytes, blocks, { bytes: 20, offset: true, fifth: false }),
  Q5_0: (bytes, blocks) => readNibbles(bytes, blocks, { bytes: 22, offset: false, fifth: true }),
  Q5_1: (bytes, blocks) => readNibbles(bytes, blocks, { bytes: 24, offset: true, fifth: true }),
  Q8_0: readBytes,
  Q4_K: (bytes, blocks) => readSuper(bytes, blocks, false),
  Q5_K: (bytes, blocks) => readSuper(bytes, blocks, true),
  Q6_K: readSixBits,
};

/** scale f16, [offset f16], [32 fifth bits], 16 bytes: codes 0 … 15 in the low nibbles, 16 … 31 in the high. */
function readNibbles(
  bytes: Uint8Array,
  { codes, scales, offsets }: Blocks,
  layout: { bytes: number; offset: boolean; fifth: boolean },
): void {
  const high = layout.offset ? 4 : 2;
  const low = high + (layout.fifth ? 4 : 0);
  for (let b = 0, at = 0, out = 0; b < scales.length; b++, at += layout.bytes, out += 32) {
    scales[b] = half(bytes, at);
    if (layout.offset) offsets[b] = half(bytes, at + 2);
    const fifth = layout.fifth ? uint32(bytes, at + high) : 0;
    for (let j = 0; j < 16; j++) {
      const pair = bytes[at + low + j]!;
      codes[out + j] = (pair & 15) | (((fifth >>> j) & 1) << 4);
      codes[out + 16 + j] = (pair >>> 4) | (((fifth >>> (16 + j)) & 1) << 4);
    }
  }
}

/** scale f16, 32 signed bytes; stored here with 128 added. */
function readBytes(bytes: Uint8Array, { codes, scales }: Blocks): void {
  for (let b = 0, at = 0, out = 0; b < scales.length; b++, at += 34, out += 32) {
    scales[b] = half(bytes, at);
    for (let j = 0; j < 32; j++) codes[out + j] = bytes[at + 2 + j]! ^ 128;
  }
}

/**
 * 256 values: scale f16, minimum f16, 12 bytes that hold eight 6-bit scales and eight 6-bit minima, [32 bytes
 * of fifth bits: bit g of byte j belongs to value j of group g], 128 bytes: groups 2i in the low nibbles and
 * 2i + 1 in the high nibbles of 32 bytes.
 */
function readSuper(bytes: Uint8Array, { codes, scales, offsets }: Blocks, fifth: boolean): void {
  const low = fifth ? 48 : 16;
  const step = low + 128;
  for (let at = 0, out = 0; out < codes.length; at += step, out += 256) {
    const scale = half(bytes, at);
    const minimum = half(bytes, at + 2);
    for (let group = 0; group < 8; group++) {
      const packed = at + 4;
      const [s, m] = sixBitPair(bytes, packed, group);
      scales[out / 32 + group] = scale * s;
      offsets[out / 32 + group] = -(minimum * m);
      const from = at + low + (group >> 1) * 32;
      const shift = (group & 1) * 4;
      for (let j = 0; j < 32; j++) {
        const high = fifth ? ((bytes[at + 16 + j]! >>> group) & 1) << 4 : 0;
        codes[out + group * 32 + j] = ((bytes[from + j]! >>> shift) & 15) | high;
      }
    }
  }
}

/** Scale and minimum of one group out of the 12 bytes at `at`. */
function sixBitPair(bytes: Uint8Array, at: number, group: number): readonly [number, number] {
  if (group < 4) return [bytes[at + group]! & 63, bytes[at + 4 + group]! & 63];
  const low = bytes[at + 4 + group]!;
  return [
    (low & 15) | ((bytes[at + group - 4]! >>> 6) << 4),
    (low >>> 4) | ((bytes[at + group]! >>> 6) << 4),
  ];
}

/** 256 values: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, scale f16. */
function readSixBits(bytes: Uint8Array, { codes, scales }: Blocks): void {
  for (let at = 0, out = 0; out < codes.length; at += 210, out += 256) {
    const scale = half(bytes, at + 208);
    for (let b = 0; b < 16; b++) scales[out / 16 + b] = scale * ((bytes[at + 192 + b]! << 24) >> 24);
    for (let side = 0; side < 2; side++) {
      const low = at + side * 64;
      const high = at + 128 + side * 32;
      const to = out + side * 128;
      for (let j = 0; j < 32; j++) {
        const upper = bytes[high + j]!;
        const first = bytes[low + j]!;
        const second = bytes[low + 32 + j]!;
        codes[to + j] = (first & 15) | ((upper & 3) << 4);
        codes[to + 32 + j] = (second & 15) | (((upper >>> 2) & 3) << 4);
        codes[to + 64 + j] = (first >>> 4) | (((upper >>> 4) & 3) << 4);
        codes[to + 96 + j] = (second >>> 4) | ((upper >>> 6) << 4);
      }
    }
  }
}

function half(bytes: Uint8Array, at: number): number {
  return f16Values[bytes[at]! | (bytes[at + 1]! << 8)]!;
}

function uint32(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}
