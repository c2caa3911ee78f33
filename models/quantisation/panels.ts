// The packed weight layout of native/linear/layout.h, written. A panel is 16 rows of a block-quantised matrix, interleaved
// in groups of 32 columns in the order in which the kernels of pocket::Linear read them (a "packed panel" of GEMM
// literature). Only the order of codes, scales and minima changes, never a value; panel-source.ts provides them.
import { type BlockType, blockTypes } from "./block-types.ts";
import type { PanelSource } from "./panel-source.ts";

/** Names of native/linear/linear.h's BlockFormat; a graph holds the index in `panelFormats`. */
export type PanelFormat = Lowercase<BlockType>;
export const panelFormats = Object.keys(blockTypes).map((type) => panelFormatOf(type as BlockType));

export function panelFormatOf(type: BlockType): PanelFormat {
  return type.toLowerCase() as PanelFormat;
}

interface PanelLayout {
  readonly bits: 4 | 5 | 6 | 8;
  /** Columns of a record: those under one f16 scale. */
  readonly columns: 32 | 256;
  /** The record has an f16 minimum after the f16 scales. */
  readonly minimum: boolean;
  /** Integer scales, and integer minima, of a row in a record. */
  readonly scales: 0 | 8 | 16;
  readonly minima: 0 | 8;
}

function layoutOf(format: PanelFormat): PanelLayout {
  const { bits, values, minimumAt, sub } = blockTypes[format.toUpperCase() as BlockType];
  const { scales = 0, minima = 0 } = sub ?? {};
  return { bits, columns: values, minimum: minimumAt !== undefined, scales, minima };
}

/** Rows of a panel; a matrix is padded with rows of zero codes and zero scales. */
export const panelRows = 16;
const groupColumns = 32;

/** Columns of a record: a matrix has a multiple of them. */
export function recordColumns(format: PanelFormat): number {
  return layoutOf(format).columns;
}

function recordBytes(format: PanelFormat): number {
  const { bits, columns, minimum, scales, minima } = layoutOf(format);
  return panelRows * (minimum ? 4 : 2) + panelRows * (scales + minima) + (panelRows * columns * bits) / 8;
}

/** Bytes of a matrix; columns is a multiple of the record's. */
export function panelBytes(format: PanelFormat, rows: number, columns: number): number {
  const records = columns / recordColumns(format);
  return Math.ceil(rows / panelRows) * records * recordBytes(format);
}

/** Panels of `rows` neighbouring rows, the first of which begins a panel. A fresh array. */
export function packPanels(
  format: PanelFormat,
  source: PanelSource,
  rows: number,
  columns: number,
): Uint8Array {
  const layout = layoutOf(format);
  const packed = new Uint8Array(panelBytes(format, rows, columns));
  const records = columns / layout.columns;
  const cursor: Cursor = { packed, at: 0, layout, source, records, row: 0, rowCount: 0, index: 0 };
  for (cursor.row = 0; cursor.row < rows; cursor.row += panelRows) {
    cursor.rowCount = Math.min(panelRows, rows - cursor.row);
    for (cursor.index = 0; cursor.index < records; cursor.index++) cursor.at = packRecord(cursor, columns);
  }
  return packed;
}

/** The record that is packed next. */
interface Cursor {
  readonly packed: Uint8Array;
  /** Offset of the record in `packed`. */
  at: number;
  readonly layout: PanelLayout;
  readonly source: PanelSource;
  /** Records of a row. */
  readonly records: number;
  /** First row of the panel. */
  row: number;
  /** Rows of the panel that are not padding. */
  rowCount: number;
  /** Index of the record along the columns. */
  index: number;
}

/** Returns the offset of the next record. */
function packRecord(record: Cursor, columns: number): number {
  const { layout, source } = record;
  let at = packHalves(record, record.at, source.scales);
  if (layout.minimum) at = packHalves(record, at, source.minima!);
  at = packBytes(record, at, source.subScales, layout.scales);
  at = packBytes(record, at, source.subMinima, layout.minima);
  for (let group = 0; group < layout.columns; group += groupColumns) {
    const first = record.row * columns + record.index * layout.columns + group;
    gatherGroup(source.codes, first, columns, record.rowCount);
    at = packers[layout.bits](record.packed, at);
  }
  return at;
}

/** One f16 of each row. */
function packHalves(
  { packed, row, rowCount, records, index }: Cursor,
  at: number,
  halves: Uint16Array,
): number {
  for (let n = 0; n < rowCount; n++) {
    const bits = halves[(row + n) * records + index]!;
    packed[at + 2 * n] = bits;
    packed[at + 2 * n + 1] = bits >>> 8;
  }
  return at + 2 * panelRows;
}

/** `count` bytes of each row: byte 0 of all rows, then byte 1 of all rows, and so on. */
function packBytes(
  { packed, row, rowCount, records, index }: Cursor,
  at: number,
  bytes: Uint8Array | undefined,
  count: number,
): number {
  for (let i = 0; i < count; i++)
    for (let n = 0; n < rowCount; n++)
      packed[at + i * panelRows + n] = bytes![((row + n) * records + index) * count + i]!;
  return at + count * panelRows;
}

/** The 512 codes of a group, four to a word: columns k … k + 3 of row n are word (k / 4) * 16 + n. */
const words = new Uint32Array((panelRows * groupColumns) / 4);

function gatherGroup(codes: Uint8Array, first: number, columns: number, rowCount: number): void {
  if (rowCount < panelRows) words.fill(0);
  const source = new Uint32Array(codes.buffer, codes.byteOffset, codes.length >> 2);
  for (let n = 0; n < rowCount; n++) {
    const from = (first + n * columns) >> 2;
    for (let quad = 0; quad < groupColumns / 4; quad++) words[quad * panelRows + n] = source[from + quad]!;
  }
}

/** By bits of a code. Each writes the gathered group at `at` and returns the end. */
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

/** The low four bits: words of the first half in the low nibbles, of the second half in the high nibbles. */
function packLow(packed: Uint8Array, at: number): number {
  const half = words.length / 2;
  const out = new Uint32Array(packed.buffer, packed.byteOffset + at, half);
  for (let i = 0; i < half; i++) out[i] = (words[i]! & 0x0f0f0f0f) | ((words[half + i]! & 0x0f0f0f0f) << 4);
  return at + half * 4;
}

/** Bit 4 of each of the four codes, as four neighbouring bits. */
function fifthBits(word: number): number {
  const bits = (word >>> 4) & 0x01010101;
  return (bits | (bits >>> 7) | (bits >>> 14) | (bits >>> 21)) & 15;
}
