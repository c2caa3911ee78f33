// The registry of GGUF block types: a quantisation is added here (and in native/linear/layout.h, which multiplies it).
// Each entry says how a block lies in the file and how it is taken apart into codes, scales and offsets:
//
//   value = scale[b] * (code - zeroPoint)   types with a zero point (Q4_0 Q5_0 Q8_0 Q6_K)
//   value = scale[b] * code + offset[b]     types with a minimum (Q4_1 Q5_1 Q4_K Q5_K)
//
// b counts groups of `group` codes in the order of the values. Nothing is rounded: a scale is a product of at most 19
// significant bits, which an f32 holds. Layouts: ggml's ggml-common.h.
import { f16Values } from "./half.ts";

export interface BlockLayout {
  /** Values in a block of the file. */
  readonly values: 32 | 256;
  /** Bytes of a block of the file. */
  readonly bytes: number;
  /** Bits of a code. */
  readonly bits: 4 | 5 | 6 | 8;
  /** Codes under one scale. */
  readonly group: 16 | 32;
  /** The code of 0. Undefined: the type has offsets. */
  readonly zeroPoint: number | undefined;
  /** Offset of the block's f16 scale, in bytes from its start. */
  readonly scaleAt: number;
  /** Offset of the block's f16 minimum, where it has one. */
  readonly minimumAt?: number;
  /** k-quants: integers of the groups that multiply the f16 scale and minimum. */
  readonly sub?: SubScaleLayout;
  readonly read: (bytes: Uint8Array, into: Blocks) => void;
}

interface SubScaleLayout {
  /** Sub-scales in a block. */
  readonly scales: 8 | 16;
  /** Sub-minima in a block. */
  readonly minima: 0 | 8;
  /** One byte for each, block after block. */
  readonly read: (bytes: Uint8Array, blocks: number) => SubScales;
}

export interface SubScales {
  readonly subScales: Uint8Array;
  readonly subMinima?: Uint8Array;
}

export interface Blocks {
  /** One byte per value, unsigned. */
  readonly codes: Uint8Array;
  readonly scales: Float32Array;
  /** All zero for types with a zero point. */
  readonly offsets: Float32Array;
}

/** Types whose block is one group of 32. */
const simple = { values: 32, group: 32, scaleAt: 0 } as const;
/** Q4_K and Q5_K. */
const super256 = { values: 256, group: 32, zeroPoint: undefined, scaleAt: 0, minimumAt: 2 } as const;

/** The order is that of native/linear/linear.h's BlockFormat: graphs hold a format as its index. */
const layouts = {
  Q4_0: { ...simple, bytes: 18, bits: 4, zeroPoint: 8, read: nibbles({ bytes: 18 }) },
  Q4_1: {
    ...simple,
    bytes: 20,
    bits: 4,
    zeroPoint: undefined,
    minimumAt: 2,
    read: nibbles({ bytes: 20, offset: true }),
  },
  Q5_0: { ...simple, bytes: 22, bits: 5, zeroPoint: 16, read: nibbles({ bytes: 22, fifth: true }) },
  Q5_1: {
    ...simple,
    bytes: 24,
    bits: 5,
    zeroPoint: undefined,
    minimumAt: 2,
    read: nibbles({ bytes: 24, offset: true, fifth: true }),
  },
  Q8_0: { ...simple, bytes: 34, bits: 8, zeroPoint: 128, read: readBytes },
  Q4_K: {
    ...super256,
    bytes: 144,
    bits: 4,
    sub: { scales: 8, minima: 8, read: (bytes, blocks) => sixBitScales(bytes, 144, blocks) },
    read: (bytes, into) => readSuperBlocks(bytes, into, false),
  },
  Q5_K: {
    ...super256,
    bytes: 176,
    bits: 5,
    sub: { scales: 8, minima: 8, read: (bytes, blocks) => sixBitScales(bytes, 176, blocks) },
    read: (bytes, into) => readSuperBlocks(bytes, into, true),
  },
  Q6_K: {
    values: 256,
    bytes: 210,
    bits: 6,
    group: 16,
    zeroPoint: 32,
    scaleAt: 208,
    sub: { scales: 16, minima: 0, read: byteScales },
    read: readSixBits,
  },
} satisfies Readonly<Record<string, BlockLayout>>;

export type BlockType = keyof typeof layouts;
export const blockTypes: Readonly<Record<BlockType, BlockLayout>> = layouts;

/** Takes `count` values apart; `count` is a multiple of the type's block in the file. */
export function readBlocks(type: BlockType, bytes: Uint8Array, count: number): Blocks {
  const { group, read } = blockTypes[type];
  const blocks: Blocks = {
    codes: new Uint8Array(count),
    scales: new Float32Array(count / group),
    offsets: new Float32Array(count / group),
  };
  read(bytes, blocks);
  return blocks;
}

/** scale f16, [offset f16], [32 fifth bits], 16 bytes: codes 0 … 15 in the low nibbles, 16 … 31 in the high. */
function nibbles(layout: { bytes: number; offset?: true; fifth?: true }): BlockLayout["read"] {
  const high = layout.offset ? 4 : 2;
  const low = high + (layout.fifth ? 4 : 0);
  return (bytes, { codes, scales, offsets }) => {
    for (let b = 0, at = 0, out = 0; b < scales.length; b++, at += layout.bytes, out += 32) {
      scales[b] = f16At(bytes, at);
      if (layout.offset) offsets[b] = f16At(bytes, at + 2);
      const fifth = layout.fifth ? uint32At(bytes, at + high) : 0;
      for (let j = 0; j < 16; j++) {
        const byte = bytes[at + low + j]!;
        codes[out + j] = (byte & 15) | (((fifth >>> j) & 1) << 4);
        codes[out + 16 + j] = (byte >>> 4) | (((fifth >>> (16 + j)) & 1) << 4);
      }
    }
  };
}

/** scale f16, 32 signed bytes; the codes have 128 added. */
function readBytes(bytes: Uint8Array, { codes, scales }: Blocks): void {
  for (let b = 0, at = 0, out = 0; b < scales.length; b++, at += 34, out += 32) {
    scales[b] = f16At(bytes, at);
    for (let j = 0; j < 32; j++) codes[out + j] = bytes[at + 2 + j]! ^ 128;
  }
}

/**
 * 256 values: scale f16, minimum f16, 12 bytes that hold eight 6-bit scales and eight 6-bit minima, [32 bytes of fifth
 * bits: bit g of byte j belongs to value j of group g], 128 bytes: groups 2i in the low nibbles and 2i + 1 in the high
 * nibbles of 32 bytes.
 */
function readSuperBlocks(bytes: Uint8Array, { codes, scales, offsets }: Blocks, fifth: boolean): void {
  const low = fifth ? 48 : 16;
  const step = low + 128;
  for (let at = 0, out = 0; out < codes.length; at += step, out += 256) {
    const scale = f16At(bytes, at);
    const minimum = f16At(bytes, at + 2);
    for (let group = 0; group < 8; group++) {
      const [s, m] = sixBitPair(bytes, at + 4, group);
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

/** Sub-scale and sub-minimum of one group out of the 12 packed bytes at `at`. */
function sixBitPair(bytes: Uint8Array, at: number, group: number): readonly [number, number] {
  if (group < 4) return [bytes[at + group]! & 63, bytes[at + 4 + group]! & 63];
  const low = bytes[at + 4 + group]!;
  return [
    (low & 15) | ((bytes[at + group - 4]! >>> 6) << 4),
    (low >>> 4) | ((bytes[at + group]! >>> 6) << 4),
  ];
}

/** The eight 6-bit sub-scales and sub-minima in bytes 4 … 16 of each block. */
function sixBitScales(bytes: Uint8Array, step: number, blocks: number): SubScales {
  const subScales = new Uint8Array(blocks * 8);
  const subMinima = new Uint8Array(blocks * 8);
  for (let i = 0; i < blocks * 8; i++) {
    const [s, m] = sixBitPair(bytes, (i >> 3) * step + 4, i & 7);
    subScales[i] = s;
    subMinima[i] = m;
  }
  return { subScales, subMinima };
}

/** 256 values: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed sub-scales, scale f16. */
function readSixBits(bytes: Uint8Array, { codes, scales }: Blocks): void {
  for (let at = 0, out = 0; out < codes.length; at += 210, out += 256) {
    const scale = f16At(bytes, at + 208);
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

/** The 16 signed sub-scales of each Q6_K block, as the bytes they are. */
function byteScales(bytes: Uint8Array, blocks: number): SubScales {
  const subScales = new Uint8Array(blocks * 16);
  for (let b = 0; b < blocks; b++) subScales.set(bytes.subarray(b * 210 + 192, b * 210 + 208), b * 16);
  return { subScales };
}

function f16At(bytes: Uint8Array, at: number): number {
  return f16Values[bytes[at]! | (bytes[at + 1]! << 8)]!;
}

function uint32At(bytes: Uint8Array, at: number): number {
  return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
}
