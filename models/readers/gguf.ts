// Reads the head of a GGUF file (metadata and tensor table) and ranges of tensor data. Every count and length is checked
// against the file's size before anything is allocated, so a damaged file gives BAD_GGUF with numbers.
// Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { basename } from "node:path";
import { type PocketError, pocketError } from "../../src/errors.ts";
import { bytesOf, type TensorType, tensorLayouts, tensorType, tensorTypeName } from "./ggml.ts";

/** 64-bit integers beyond 2^53 are bigint. */
export type MetadataValue = number | bigint | boolean | string | readonly MetadataValue[];

export interface GgufTensor {
  readonly name: string;
  /** Fastest-running dimension first, as in the file: a matrix is [columns, rows]. */
  readonly dims: readonly number[];
  readonly type: TensorType;
  /** From the start of the file. */
  readonly offset: number;
  readonly bytes: number;
}

/** An open file; close it. Tensors keep the file's order. */
export interface Gguf {
  readonly file: string;
  readonly bytes: number;
  readonly version: number;
  readonly metadata: ReadonlyMap<string, MetadataValue>;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  /** Bytes [start, end) of a tensor, in a new array. Throws BAD_GGUF when the file was truncated meanwhile. */
  read(tensor: GgufTensor, start: number, end: number): Uint8Array;
  close(): void;
}

/** Throws BAD_GGUF, or UNSUPPORTED_MODEL naming the tensor whose type is unknown. */
export function openGguf(file: string): Gguf {
  const handle = openSync(file, "r");
  try {
    const head = new HeadReader(file, handle, fstatSync(handle).size);
    const { version, tensorCount, metadataCount } = readCounts(head);
    const metadata = readMetadata(head, metadataCount);
    const tensors = readTensors(head, tensorCount, alignmentOf(head, metadata));
    return {
      file,
      bytes: head.size,
      version,
      metadata,
      tensors,
      read: (tensor, start, end) => readRange(file, handle, tensor.offset + start, end - start),
      close: () => closeSync(handle),
    };
  } catch (cause) {
    closeSync(handle);
    throw cause;
  }
}

/** A cursor over the file's head that never reads past the end of the file. */
class HeadReader {
  at = 0;
  private window: Uint8Array<ArrayBufferLike> = new Uint8Array(0);
  private windowStart = 0;

  constructor(
    readonly file: string,
    private readonly handle: number,
    readonly size: number,
  ) {}

  broken(why: string): PocketError {
    return pocketError("BAD_GGUF", basename(this.file), why);
  }

  uint8(): number {
    return this.take(1).getUint8(0);
  }
  int8(): number {
    return this.take(1).getInt8(0);
  }
  uint16(): number {
    return this.take(2).getUint16(0, true);
  }
  int16(): number {
    return this.take(2).getInt16(0, true);
  }
  uint32(): number {
    return this.take(4).getUint32(0, true);
  }
  int32(): number {
    return this.take(4).getInt32(0, true);
  }
  float32(): number {
    return this.take(4).getFloat32(0, true);
  }
  float64(): number {
    return this.take(8).getFloat64(0, true);
  }
  uint64(): number | bigint {
    return toNumber(this.take(8).getBigUint64(0, true));
  }
  int64(): number | bigint {
    return toNumber(this.take(8).getBigInt64(0, true));
  }

  /** A count of items of at least `unit` bytes each; checked against the rest of the file. */
  count(what: string, unit: number): number {
    const count = this.uint64();
    const left = this.size - this.at;
    if (typeof count === "bigint" || count * unit > left)
      throw this.broken(`${what} is ${count}, but only ${left} bytes follow`);
    return count;
  }

  text(what: string): string {
    const length = this.count(`the length of ${what}`, 1);
    return decoder.decode(this.take(length));
  }

  /** The next `count` bytes; moves past them. */
  private take(count: number): DataView {
    if (this.at + count > this.size)
      throw this.broken(
        `it ends at byte ${this.size}, inside its head (byte ${this.at} needs ${count} more)`,
      );
    if (this.at + count > this.windowStart + this.window.length) {
      const length = Math.min(Math.max(count, windowBytes), this.size - this.at);
      this.window = readRange(this.file, this.handle, this.at, length);
      this.windowStart = this.at;
    }
    const start = this.window.byteOffset + this.at - this.windowStart;
    this.at += count;
    return new DataView(this.window.buffer, start, count);
  }
}

const windowBytes = 1 << 20;
const decoder = new TextDecoder();

function toNumber(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

function readRange(file: string, handle: number, start: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let done = 0; done < length; ) {
    const got = readSync(handle, bytes, done, length - done, start + done);
    if (got === 0)
      throw pocketError(
        "BAD_GGUF",
        basename(file),
        `it ends at byte ${start + done}; ${length - done} more are needed`,
      );
    done += got;
  }
  return bytes;
}

/** "GGUF" as a little-endian number. */
const magic = 0x46554747;

function readCounts(head: HeadReader): { version: number; tensorCount: number; metadataCount: number } {
  if (head.size < 24) throw head.broken(`it has ${head.size} bytes; a head alone has 24`);
  if (head.uint32() !== magic) throw head.broken("it does not start with the letters GGUF");
  const version = head.uint32();
  if (version !== 2 && version !== 3) throw head.broken(`its version is ${version}; 2 and 3 are read`);
  // Smallest tensor entry: name length, rank, one dimension, type, offset. Smallest metadata entry: key, type, value.
  const tensorCount = head.count("the number of tensors", 8 + 4 + 8 + 4 + 8);
  const metadataCount = head.count("the number of metadata entries", 8 + 4 + 1);
  return { version, tensorCount, metadataCount };
}

function readMetadata(head: HeadReader, count: number): Map<string, MetadataValue> {
  const metadata = new Map<string, MetadataValue>();
  for (let i = 0; i < count; i++) {
    const key = head.text(`metadata key ${i}`);
    if (metadata.has(key)) throw head.broken(`the metadata key '${key}' occurs twice`);
    metadata.set(key, readValue(head, key, head.uint32(), 0));
  }
  return metadata;
}

/** By value type: its smallest size and its reader. */
const scalars: Readonly<Record<number, readonly [bytes: number, read: (head: HeadReader) => MetadataValue]>> =
  {
    0: [1, (head) => head.uint8()],
    1: [1, (head) => head.int8()],
    2: [2, (head) => head.uint16()],
    3: [2, (head) => head.int16()],
    4: [4, (head) => head.uint32()],
    5: [4, (head) => head.int32()],
    6: [4, (head) => head.float32()],
    7: [1, (head) => head.uint8() !== 0],
    8: [8, (head) => head.text("a metadata string")],
    10: [8, (head) => head.uint64()],
    11: [8, (head) => head.int64()],
    12: [8, (head) => head.float64()],
  };
const arrayType = 9;
/** The format allows arrays of arrays; real files nest at most two. */
const maxDepth = 4;

function readValue(head: HeadReader, key: string, type: number, depth: number): MetadataValue {
  if (type !== arrayType) {
    const scalar = scalars[type];
    if (!scalar) throw head.broken(`the value of '${key}' has the unknown type ${type}`);
    return scalar[1](head);
  }
  if (depth === maxDepth) throw head.broken(`the value of '${key}' nests arrays more than ${maxDepth} deep`);
  const itemType = head.uint32();
  const itemBytes = itemType === arrayType ? 12 : scalars[itemType]?.[0];
  if (itemBytes === undefined) throw head.broken(`the items of '${key}' have the unknown type ${itemType}`);
  const count = head.count(`the number of items of '${key}'`, itemBytes);
  const items: MetadataValue[] = [];
  for (let i = 0; i < count; i++) items.push(readValue(head, key, itemType, depth + 1));
  return items;
}

function alignmentOf(head: HeadReader, metadata: ReadonlyMap<string, MetadataValue>): number {
  const alignment = metadata.get("general.alignment") ?? 32;
  if (typeof alignment !== "number" || alignment < 1 || !Number.isInteger(Math.log2(alignment)))
    throw head.broken(`general.alignment is ${alignment}, not a power of two`);
  return alignment;
}

function readTensors(head: HeadReader, count: number, alignment: number): Map<string, GgufTensor> {
  const entries = [];
  for (let i = 0; i < count; i++) entries.push(readTensorEntry(head, i));
  const dataStart = Math.ceil(head.at / alignment) * alignment;
  const tensors = new Map<string, GgufTensor>();
  for (const entry of entries) {
    const { name, type, dims } = entry;
    if (tensors.has(name)) throw head.broken(`the tensor '${name}' occurs twice`);
    if (entry.offset % alignment !== 0)
      throw head.broken(`the tensor '${name}' starts at ${entry.offset}, not at a multiple of ${alignment}`);
    const offset = dataStart + entry.offset;
    const bytes = bytesOf(
      type,
      dims.reduce((product, size) => product * size, 1),
    );
    if (offset + bytes > head.size)
      throw head.broken(
        `the tensor '${name}' lies at [${offset}, ${offset + bytes}), but the file ends at ${head.size}`,
      );
    tensors.set(name, { name, dims, type, offset, bytes });
  }
  return tensors;
}

function readTensorEntry(head: HeadReader, index: number) {
  const name = head.text(`the name of tensor ${index}`);
  const rank = head.uint32();
  if (rank < 1 || rank > 4)
    throw head.broken(`the tensor '${name}' has ${rank} dimensions; 1 to 4 are possible`);
  const dims: number[] = [];
  let values = 1;
  for (let d = 0; d < rank; d++) {
    const size = head.uint64();
    values *= Number(size);
    // No file has 2^48 values, and a double still holds the product exactly.
    if (typeof size === "bigint" || size < 1 || values > 2 ** 48)
      throw head.broken(`the tensor '${name}' has the impossible dimension ${size}`);
    dims.push(size);
  }
  const typeNumber = head.uint32();
  const type = tensorType(typeNumber);
  if (!type) {
    const known = Object.keys(tensorLayouts).join(", ");
    throw pocketError(
      "UNSUPPORTED_MODEL",
      `The tensor '${name}' has the type ${tensorTypeName(typeNumber)}; ${known} are read.`,
    );
  }
  const offset = head.uint64();
  if (typeof offset === "bigint") throw head.broken(`the tensor '${name}' starts at byte ${offset}`);
  if (dims[0]! % tensorLayouts[type].values !== 0)
    throw head.broken(`the rows of '${name}' have ${dims[0]} values, not a multiple of ${type}'s block`);
  return { name, dims, type, offset };
}
