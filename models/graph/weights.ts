// Tensors of a GGUF file into weights.bin: where their arrays lie (4,096-aligned, so that ONNX Runtime can map
// them), and writing them a few rows at a time, so a vocabulary of 500 MB never stands in memory whole. Which
// container a matrix gets is decided in panel-containers.ts or, for ONNX Runtime's own operators, containers.ts;
// what it is for, in the family file.
import { closeSync, openSync, writeSync } from "node:fs";
import { basename } from "node:path";
import { pocketError } from "../../src/errors.ts";
import type { LinearKind, TensorRecord, WeightFormat } from "../manifest.ts";
import { dequantise } from "../quantisation/dequantise.ts";
import { choosePanels, type PanelContainer } from "../quantisation/panel-containers.ts";
import { type PanelFormat, packPanels, panelBytes, panelLayouts, panelRows } from "../quantisation/panels.ts";
import { type BlockContainer, chooseContainer, type MatrixRole } from "../quantisation/weight-formats.ts";
import { bytesOf } from "../readers/ggml.ts";
import type { Gguf, GgufTensor } from "../readers/gguf.ts";
import { diskError } from "../registry/disk-errors.ts";
import type { ExternalTensor } from "./onnx.ts";

export type StoredTensor = ExternalTensor;

export interface StoredVector {
  readonly values: StoredTensor;
}

/**
 * W (rows, columns). "f32": values as they are. "panels": as pocket::Linear reads them (panels.ts). "blocks": as
 * MatMulNBits does, value = scale * (code - zero point), along a row.
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
      /** uint8 [rows, blocks, block * bits / 8]; of two nibbles the low one comes first. */
      readonly quants: StoredTensor;
      /** f32 [rows, blocks]. */
      readonly scales: StoredTensor;
      /** uint8 [rows, blocks * bits / 8], rounded up; absent: all 2^(bits - 1). */
      readonly zeroPoints?: StoredTensor;
    };

const alignment = 4096;
/** Values, in whole panels of rows, that are converted at once: bounds memory, long enough for the loops to be warm. */
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

  /** A one-dimensional tensor, as f32. */
  vector(tensor: GgufTensor, interleavedHeads = 0): StoredVector {
    const bytes = uninterleave(this.gguf.read(tensor, 0, tensor.bytes), interleavedHeads, tensor.dims[0]!);
    const values = this.finite(tensor, dequantise(tensor.type, bytes, tensor.dims[0]!));
    const stored = this.reserve(tensor.name, "float32", [tensor.dims[0]!]);
    this.write(stored, 0, values);
    this.records.push(record(tensor, "f32", 0, stored.bytes));
    return { values: stored };
  }

  /**
   * A matrix in the container that the format and its role give it. `interleavedHeads`: its rows are those of
   * so many heads with rotary pairs side by side, to be stored in half layout.
   */
  matrix(tensor: GgufTensor, role: MatrixRole, interleavedHeads = 0): StoredMatrix {
    const [columns, rows] = [tensor.dims[0]!, tensor.dims[1]!];
    const shape = { rows, columns, interleavedHeads };
    if (this.format === "f32") return this.plainMatrix(tensor, rows, columns, interleavedHeads);
    if (this.linear === "pocket") {
      const container = choosePanels(tensor.type, this.format, role);
      refuseOdd(tensor.name, columns, panelLayouts[container.format].columns);
      return this.panelMatrix(tensor, container, shape);
    }
    const container = chooseContainer(tensor.type, this.format, role);
    refuseOdd(tensor.name, columns, container.block);
    return this.blockMatrix(tensor, container, shape);
  }

  private panelMatrix(tensor: GgufTensor, container: PanelContainer, shape: MatrixShape): StoredMatrix {
    const { rows, columns } = shape;
    const { format, convert } = container;
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

  private blockMatrix(tensor: GgufTensor, container: BlockContainer, shape: MatrixShape): StoredMatrix {
    const { rows, columns } = shape;
    const { bits, block, convert } = container;
    const perRow = columns / block;
    const zeroBytes = Math.ceil((perRow * bits) / 8);
    const { name } = tensor;
    const quants = this.reserve(`${name}.quants`, "uint8", [rows, perRow, (block * bits) / 8]);
    const scales = this.reserve(`${name}.scales`, "float32", [rows, perRow]);
    const zeroPoints = container.zeroPoints
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
    this.records.push(record(tensor, container.stored, worst, bytes));
    const base = { encoding: "blocks", rows, columns, bits, block, quants, scales } as const;
    return zeroPoints ? { ...base, zeroPoints } : base;
  }

  /** The tensor's bytes, some rows at a time; a tensor whose rows are reordered comes whole. */
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

  /** Raw f16 bits: a file's own, or those of values that were rounded. */
  private finiteHalves(tensor: GgufTensor, halves: Uint16Array): void {
    if (halves.every((bits) => (bits & 0x7c00) !== 0x7c00)) return;
    const why = `the tensor '${tensor.name}' has a block whose scale is not finite as a 16-bit number`;
    throw pocketError("BAD_GGUF", basename(this.gguf.file), why);
  }

  private finite(tensor: GgufTensor, values: Float32Array): Float32Array {
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

function refuseOdd(name: string, columns: number, block: number): void {
  if (columns % block === 0) return;
  const sentence = `The rows of '${name}' have ${columns} values; quantised containers need a multiple of ${block}.`;
  throw pocketError("UNSUPPORTED_MODEL", sentence);
}

interface RowChunk {
  readonly row: number;
  readonly values: number;
  readonly bytes: Uint8Array;
}

/** Rows of a head stand as pairs (0, 0 + half), (1, 1 + half) …; afterwards the first halves come first. */
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

/** Zero points of `perRow` blocks a row; a row of 4-bit ones starts at a whole byte. */
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
