// Writes the tensors of a GGUF file to weights.bin: offsets are multiples of 4,096, so that ONNX Runtime can map them; rows
// are converted in chunks, so that memory stays small whatever the size of a tensor. How a matrix is stored under a
// weight format is decided by quantisation/weight-formats.ts.
import { closeSync, openSync, writeSync } from "node:fs";
import { basename } from "node:path";
import { pocketError } from "../../src/errors.ts";
import type { LinearKind, TensorRecord, WeightFormat } from "../manifest.ts";
import { dequantise } from "../quantisation/dequantise.ts";
import {
  type PanelFormat,
  packPanels,
  panelBytes,
  panelRows,
  recordColumns,
} from "../quantisation/panels.ts";
import {
  type MatrixRole,
  type NBitsStorage,
  nBitsStorage,
  type PanelStorage,
  panelStorage,
} from "../quantisation/weight-formats.ts";
import { bytesOf } from "../readers/ggml.ts";
import type { Gguf, GgufTensor } from "../readers/gguf.ts";
import { diskError } from "../registry/disk-errors.ts";
import type { ExternalTensor } from "./onnx.ts";

export type StoredTensor = ExternalTensor;

export interface StoredVector {
  readonly values: StoredTensor;
}

/**
 * W (rows, columns). "f32": plain values. "panels": the packed layout of pocket::Linear (quantisation/panels.ts).
 * "blocks": the layout of MatMulNBits; blocks run along a row, value = scale * (code - zero point).
 */
export type StoredMatrix =
  | {
      readonly encoding: "f32";
      readonly rows: number;
      readonly columns: number;
      readonly values: StoredTensor;
    }
  | {
      readonly encoding: "panels";
      readonly rows: number;
      readonly columns: number;
      readonly format: PanelFormat;
      /** uint8, one dimension. */
      readonly panels: StoredTensor;
    }
  | {
      readonly encoding: "blocks";
      readonly rows: number;
      readonly columns: number;
      readonly bits: 4 | 8;
      readonly block: number;
      /** uint8 [rows, blocks, block * bits / 8]; low nibble first. */
      readonly quants: StoredTensor;
      /** f32 [rows, blocks]. */
      readonly scales: StoredTensor;
      /** uint8 [rows, ceil(blocks * bits / 8)]; absent: all 2^(bits - 1). */
      readonly zeroPoints?: StoredTensor;
    };

const alignment = 4096;
/** Values converted at once, rounded to whole panels: bounds memory, and is long enough for compiled loops. */
const chunkValues = 1 << 21;

/** Writes one weights file. Synchronous; a failed write throws DISK_FULL or the system's error. */
export class WeightsWriter {
  readonly records: TensorRecord[] = [];
  private readonly handle: number;
  private end = 0;

  constructor(
    private readonly gguf: Gguf,
    private readonly file: string,
    private readonly format: WeightFormat,
    private readonly linear: LinearKind,
  ) {
    this.handle = openSync(file, "w");
  }

  get bytes(): number {
    return this.end;
  }

  close(): void {
    closeSync(this.handle);
  }

  /** Stores a one-dimensional tensor as f32. */
  vector(tensor: GgufTensor, interleavedHeads = 0): StoredVector {
    const bytes = uninterleave(this.gguf.read(tensor, 0, tensor.bytes), interleavedHeads, tensor.dims[0]!);
    const values = this.finite(tensor, dequantise(tensor.type, bytes, tensor.dims[0]!));
    const stored = this.reserve(tensor.name, "float32", [tensor.dims[0]!]);
    this.write(stored, 0, values);
    this.records.push(record(tensor, "f32", 0, stored.bytes));
    return { values: stored };
  }

  /**
   * Stores a matrix as the weight format says for its role. `interleavedHeads` above 0: the rows belong to that many
   * heads whose rotary pairs are neighbours; they are reordered to half layout.
   */
  matrix(tensor: GgufTensor, role: MatrixRole, interleavedHeads = 0): StoredMatrix {
    const [columns, rows] = [tensor.dims[0]!, tensor.dims[1]!];
    const shape = { rows, columns, interleavedHeads };
    if (this.format === "f32") return this.plainMatrix(tensor, rows, columns, interleavedHeads);
    if (this.linear === "pocket") {
      const storage = panelStorage[this.format](tensor.type, role);
      refusePartialBlocks(tensor.name, columns, recordColumns(storage.format));
      return this.panelMatrix(tensor, storage, shape);
    }
    const storage = nBitsStorage[this.format](tensor.type, role);
    refusePartialBlocks(tensor.name, columns, storage.block);
    return this.blockMatrix(tensor, storage, shape);
  }

  private panelMatrix(tensor: GgufTensor, storage: PanelStorage, shape: MatrixShape): StoredMatrix {
    const { rows, columns } = shape;
    const { format, convert } = storage;
    const bytesOfPanel = panelBytes(format, panelRows, columns);
    const panels = this.reserve(`${tensor.name}.panels`, "uint8", [panelBytes(format, rows, columns)]);
    let worst = 0;
    for (const chunk of this.rowChunks(tensor, shape.interleavedHeads)) {
      const source = convert(chunk.bytes, chunk.values, (values) => this.finite(tensor, values));
      this.finiteHalves(tensor, source.scales);
      if (source.minima) this.finiteHalves(tensor, source.minima);
      worst = Math.max(worst, source.maxErrorSteps);
      const packed = packPanels(format, source, chunk.values / columns, columns);
      this.write(panels, (chunk.row / panelRows) * bytesOfPanel, packed);
    }
    this.records.push(record(tensor, `${format} panels`, worst, panels.bytes));
    return { encoding: "panels", rows, columns, format, panels };
  }

  private plainMatrix(tensor: GgufTensor, rows: number, columns: number, heads: number): StoredMatrix {
    const values = this.reserve(tensor.name, "float32", [rows, columns]);
    for (const chunk of this.rowChunks(tensor, heads))
      this.write(
        values,
        chunk.row * columns * 4,
        this.finite(tensor, dequantise(tensor.type, chunk.bytes, chunk.values)),
      );
    this.records.push(record(tensor, "f32", 0, values.bytes));
    return { encoding: "f32", rows, columns, values };
  }

  private blockMatrix(tensor: GgufTensor, storage: NBitsStorage, shape: MatrixShape): StoredMatrix {
    const { rows, columns } = shape;
    const { bits, block, convert } = storage;
    const perRow = columns / block;
    const zeroBytes = Math.ceil((perRow * bits) / 8);
    const { name } = tensor;
    const quants = this.reserve(`${name}.quants`, "uint8", [rows, perRow, (block * bits) / 8]);
    const scales = this.reserve(`${name}.scales`, "float32", [rows, perRow]);
    const zeroPoints = storage.zeroPoints
      ? this.reserve(`${name}.zero_points`, "uint8", [rows, zeroBytes])
      : undefined;
    let worst = 0;
    for (const chunk of this.rowChunks(tensor, shape.interleavedHeads)) {
      const converted = convert(chunk.bytes, chunk.values, (values) => this.finite(tensor, values));
      worst = Math.max(worst, converted.maxErrorSteps);
      this.write(
        quants,
        (chunk.row * columns * bits) / 8,
        bits === 4 ? packNibbles(converted.codes) : converted.codes,
      );
      this.write(scales, chunk.row * perRow * 4, converted.scales);
      if (zeroPoints)
        this.write(zeroPoints, chunk.row * zeroBytes, packRows(converted.zeroPoints!, perRow, bits));
    }
    const bytes = quants.bytes + scales.bytes + (zeroPoints?.bytes ?? 0);
    this.records.push(record(tensor, storage.stored, worst, bytes));
    const base = { encoding: "blocks", rows, columns, bits, block, quants, scales } as const;
    return zeroPoints ? { ...base, zeroPoints } : base;
  }

  /** The tensor's bytes in chunks of rows; a tensor whose rows are reordered is one chunk. */
  private *rowChunks(tensor: GgufTensor, interleavedHeads: number): Generator<RowChunk> {
    const [columns, rows] = [tensor.dims[0]!, tensor.dims[1]!];
    const rowBytes = bytesOf(tensor.type, columns);
    const step =
      interleavedHeads > 0 ? rows : panelRows * Math.max(1, Math.floor(chunkValues / columns / panelRows));
    for (let row = 0; row < rows; row += step) {
      const end = Math.min(rows, row + step);
      const bytes = this.gguf.read(tensor, row * rowBytes, end * rowBytes);
      yield { row, values: (end - row) * columns, bytes: uninterleave(bytes, interleavedHeads, end - row) };
    }
  }

  private reserve(name: string, type: "float32" | "uint8", dims: readonly number[]): StoredTensor {
    const offset = Math.ceil(this.end / alignment) * alignment;
    const bytes = dims.reduce((product, size) => product * size, type === "float32" ? 4 : 1);
    this.end = offset + bytes;
    return { name, type, dims, offset, bytes };
  }

  private write(stored: StoredTensor, at: number, array: Uint8Array | Float32Array): void {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    try {
      for (let done = 0; done < bytes.length; )
        done += writeSync(this.handle, bytes, done, bytes.length - done, stored.offset + at + done);
    } catch (cause) {
      throw diskError(cause, this.file);
    }
  }

  /** Throws BAD_GGUF where raw f16 bits are infinite or NaN. */
  private finiteHalves(tensor: GgufTensor, halves: Uint16Array): void {
    if (halves.every((bits) => (bits & 0x7c00) !== 0x7c00)) return;
    const why = `the tensor '${tensor.name}' has a block whose scale is not finite as a 16-bit number`;
    throw pocketError("BAD_GGUF", basename(this.gguf.file), why);
  }

  /** Returns `values`; throws BAD_GGUF where one is infinite or NaN. */
  private finite(tensor: GgufTensor, values: Float32Array): Float32Array {
    // A product with 0 is NaN for infinities and NaN: one sum checks all values without a branch.
    let sum = 0;
    for (let i = 0; i < values.length; i++) sum += values[i]! * 0;
    if (sum === 0) return values;
    throw pocketError(
      "BAD_GGUF",
      basename(this.gguf.file),
      `the tensor '${tensor.name}' holds a number that is not finite`,
    );
  }
}

interface MatrixShape {
  readonly rows: number;
  readonly columns: number;
  readonly interleavedHeads: number;
}

function refusePartialBlocks(name: string, columns: number, block: number): void {
  if (columns % block === 0) return;
  const sentence = `The rows of '${name}' have ${columns} values; quantised formats need a multiple of ${block}.`;
  throw pocketError("UNSUPPORTED_MODEL", sentence);
}

interface RowChunk {
  readonly row: number;
  readonly values: number;
  readonly bytes: Uint8Array;
}

/**
 * Rows of each head from neighbouring rotary pairs (0, half), (1, half + 1) … to half layout: rows 0 … half - 1, then
 * the rest.
 */
export function uninterleave(bytes: Uint8Array, heads: number, rows: number): Uint8Array {
  if (heads === 0) return bytes;
  const rowBytes = bytes.length / rows;
  const half = rows / heads / 2;
  const ordered = new Uint8Array(bytes.length);
  for (let head = 0; head < heads; head++)
    for (let side = 0; side < 2; side++)
      for (let i = 0; i < half; i++) {
        const from = (head * half * 2 + 2 * i + side) * rowBytes;
        const to = (head * half * 2 + side * half + i) * rowBytes;
        ordered.set(bytes.subarray(from, from + rowBytes), to);
      }
  return ordered;
}

function packNibbles(codes: Uint8Array): Uint8Array {
  const packed = new Uint8Array(codes.length / 2);
  for (let i = 0; i < packed.length; i++) packed[i] = codes[2 * i]! | (codes[2 * i + 1]! << 4);
  return packed;
}

/** Zero points of `perRow` blocks in each row; a row of 4-bit zero points starts at a whole byte. */
function packRows(zeroPoints: Uint8Array, perRow: number, bits: 4 | 8): Uint8Array {
  if (bits === 8) return zeroPoints;
  const rowBytes = Math.ceil(perRow / 2);
  const packed = new Uint8Array((zeroPoints.length / perRow) * rowBytes);
  for (let i = 0; i < zeroPoints.length; i++) {
    const row = Math.floor(i / perRow);
    const column = i % perRow;
    const at = row * rowBytes + (column >> 1);
    packed[at] = packed[at]! | (zeroPoints[i]! << ((column & 1) * 4));
  }
  return packed;
}

function record(tensor: GgufTensor, stored: string, maxErrorSteps: number, bytes: number): TensorRecord {
  return {
    name: tensor.name,
    source: tensor.type,
    stored,
    bitTrue: maxErrorSteps === 0,
    maxErrorSteps,
    bytes,
  };
}
