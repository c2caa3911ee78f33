// The panel layout of native/linear/layout.h, written: 16 rows of a block-quantised matrix side by side, group of
// 32 columns after group, in the order in which the kernels of pocket::Linear read them. Only the order of the
// file's codes, scales and minima changes here, never a value. Where they come from is panel-source.ts's work.
import type { PanelSource } from "./panel-source.ts";

/** In the order of native/linear/linear.h's BlockFormat, whose numbers stand in the graph. */
export const panelFormats = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"] as const;
export type PanelFormat = (typeof panelFormats)[number];

export interface PanelLayout {
  readonly bits: 4 | 5 | 6 | 8;
  /** Columns under one f16 scale: a record. */
  readonly columns: 32 | 256;
  /** The record has an f16 minimum beside each f16 scale. */
  readonly minimum: boolean;
  /** Integer scales, and integer minima, of a row in a record. */
  readonly scales: 0 | 8 | 16;
  readonly minima: 0 | 8;
}

const simple = { columns: 32, scales: 0, minima: 0 } as const;
export const panelLayouts: Readonly<Record<PanelFormat, PanelLayout>> = {
  q4_0: { ...simple, bits: 4, minimum: false },
  q4_1: { ...simple, bits: 4, minimum: true },
  q5_0: { ...simple, bits: 5, minimum: false },
  q5_1: { ...simple, bits: 5, minimum: true },
  q8_0: { ...simple, bits: 8, minimum: false },
  q4_k: { bits: 4, columns: 256, minimum: true, scales: 8, minima: 8 },
  q5_k: { bits: 5, columns: 256, minimum: true, scales: 8, minima: 8 },
  q6_k: { bits: 6, columns: 256, minimum: false, scales: 16, minima: 0 },
};

/** Rows of a panel; a matrix is padded with rows of zero codes and zero scales. */
export const panelRows = 16;
const groupColumns = 32;

export function recordBytes(format: PanelFormat): number {
  const { bits, columns, minimum, scales, minima } = panelLayouts[format];
  return panelRows * (minimum ? 4 : 2) + panelRows * (scales + minima) + (panelRows * columns * bits) / 8;
}

/** Bytes of a matrix; columns is a multiple of the record's. */
export function panelBytes(format: PanelFormat, rows: number, columns: number): number {
  const records = columns / panelLayouts[format].columns;
  return Math.ceil(rows / panelRows) * records * recordBytes(format);
}

/** Panels of `rows` neighbouring rows, the first of which begins a panel. A fresh array. */
export function packPanels(
  format: PanelFormat,
  source: PanelSource,
  rows: number,
  columns: number,
): Uint8Array {
  const layout = panelLayouts[format];
  const packed = new Uint8Array(panelBytes(format, rows, columns));
  const records = columns / layout.columns;
  const record: Place = { packed, at: 0, layout, source, records, row: 0, live: 0, index: 0 };
  for (record.row = 0; record.row < rows; record.row += panelRows) {
    record.live = Math.min(panelRows, rows - record.row);
    for (record.index = 0; record.index < records; record.index++) record.at = packRecord(record, columns);
  }
  return packed;
}

/** Where the packing stands: a record of one panel, its first row, its number along the columns. */
interface Place {
  readonly packed: Uint8Array;
  at: number;
  readonly layout: PanelLayout;
  readonly source: PanelSource;
  readonly records: number;
  row: number;
  /** Rows that are not padding. */
  live: number;
  index: number;
}

/** Returns where the next record begins. */
function packRecord(record: Place, columns: number): number {
  const { layout, source } = record;
  let at = packHalves(record, record.at, source.scales);
  if (layout.minimum) at = packHalves(record, at, source.minima!);
  at = packBytes(record, at, source.subScales, layout.scales);
  at = packBytes(record, at, source.subMinima, layout.minima);
  for (let group = 0; group < layout.columns; group += groupColumns) {
    const first = record.row * columns + record.index * layout.columns + group;
    gatherGroup(source.codes, first, columns, record.live);
    at = packers[layout.bits](record.packed, at);
  }
  return at;
}

function packHalves({ packed, row, live, records, index }: Place, at: number, halves: Uint16Array): number {
  for (let n = 0; n < live; n++) {
    const bits = halves[(row + n) * records + index]!;
    packed[at + 2 * n] = bits;
    packed[at + 2 * n + 1] = bits >>> 8;
  }
  return at + 2 * panelRows;
}

/** `count` bytes of each row, the first ones of all rows first. */
function packBytes(
  { packed, row, live, records, index }: Place,
  at: number,
  bytes: Uint8Array | undefined,
  count: number,
): number {
  for (let i = 0; i < count; i++)
    for (let n = 0; n < live; n++)
      packed[at + i * panelRows + n] = bytes![((row + n) * records + index) * count + i]!;
  return at + count * panelRows;
}

/** The 512 codes of a group by position, as words of four codes: word (k / 4) * 16 + n. */
const words = new Uint32Array((panelRows * groupColumns) / 4);

function gatherGroup(codes: Uint8Array, first: number, columns: number, live: number): void {
  if (live < panelRows) words.fill(0);
  const source = new Uint32Array(codes.buffer, codes.byteOffset, codes.length >> 2);
  for (let n = 0; n < live; n++) {
    const from = (first + n * columns) >> 2;
    for (let quad = 0; quad < groupColumns / 4; quad++) words[quad * panelRows + n] = source[from + quad]!;
  }
}

/** Each writes the gathered group at `at` and returns the end. */
const packers: Readonly<Record<PanelLayout["bits"], (packed: Uint8Array, at: number) => number>> = {
  4: packLow,
  5(packed, start) {
    const at = packLow(packed, start);
    for (let i = 0; i < words.length; i += 2)
      packed[at + (i >> 1)] = fifthBits(words[i]!) | (fifthBits(words[i + 1]!) << 4);
    return at + words.length / 2;
  },
  6(packed, start) {
    const at = packLow(packed, start);
    const quarter = words.length / 4;
    const out = new Uint32Array(packed.buffer, packed.byteOffset + at, quarter);
    for (let i = 0; i < quarter; i++) {
      let upper = 0;
      for (let part = 0; part < 4; part++)
        upper |= ((words[part * quarter + i]! >>> 4) & 0x03030303) << (2 * part);
      out[i] = upper;
    }
    return at + words.length;
  },
  8(packed, at) {
    new Uint32Array(packed.buffer, packed.byteOffset + at, words.length).set(words);
    return at + words.length * 4;
  },
};

/** Low nibbles: the first half of the positions in the low ones, the second in the high ones. */
function packLow(packed: Uint8Array, at: number): number {
  const half = words.length / 2;
  const out = new Uint32Array(packed.buffer, packed.byteOffset + at, half);
  for (let i = 0; i < half; i++) out[i] = (words[i]! & 0x0f0f0f0f) | ((words[half + i]! & 0x0f0f0f0f) << 4);
  return at + half * 4;
}

/** Bit 4 of each of four codes, as four neighbouring bits. */
function fifthBits(word: number): number {
  const bits = (word >>> 4) & 0x01010101;
  return (bits | (bits >>> 7) | (bits >>> 14) | (bits >>> 21)) & 15;
}
