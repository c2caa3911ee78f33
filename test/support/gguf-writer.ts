// Writes small GGUF files (version 3) in memory, for the tiny model and for tests of the reader.
import { type TensorType, tensorTypeNumber } from "../../models/readers/ggml.ts";

/** Numbers are written as u32, {float} as f32; arrays hold strings, or integers written as i32. */
export type WritableValue =
  | number
  | boolean
  | string
  | { readonly float: number }
  | readonly string[]
  | readonly number[];

export interface WritableTensor {
  readonly name: string;
  /** Fastest-running dimension first. */
  readonly dims: readonly number[];
  readonly type: TensorType;
  readonly bytes: Uint8Array;
}

const alignment = 32;

export function encodeGguf(
  metadata: Readonly<Record<string, WritableValue>>,
  tensors: readonly WritableTensor[],
): Uint8Array {
  const entries = Object.entries(metadata);
  const head = [Buffer.from("GGUF"), u32(3), u64(tensors.length), u64(entries.length)];
  for (const [key, value] of entries) head.push(text(key), encodeValue(value));
  let offset = 0;
  for (const { name, dims, type, bytes } of tensors) {
    head.push(text(name), u32(dims.length), ...dims.map(u64), u32(tensorTypeNumber(type)), u64(offset));
    offset += padded(bytes.length);
  }
  const parts = [pad(Buffer.concat(head)), ...tensors.map(({ bytes }) => pad(bytes))];
  return Buffer.concat(parts);
}

function encodeValue(value: WritableValue): Buffer {
  if (typeof value === "string") return Buffer.concat([u32(8), text(value)]);
  if (typeof value === "boolean") return Buffer.concat([u32(7), Buffer.from([value ? 1 : 0])]);
  if (typeof value === "number") return Buffer.concat([u32(4), u32(value)]);
  if ("float" in value) return Buffer.concat([u32(6), f32(value.float)]);
  const ofStrings = typeof value[0] === "string";
  const items = value.map((item) => (typeof item === "string" ? text(item) : i32(item)));
  return Buffer.concat([u32(9), u32(ofStrings ? 8 : 5), u64(value.length), ...items]);
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function i32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function f32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

function padded(length: number): number {
  return Math.ceil(length / alignment) * alignment;
}

function pad(bytes: Uint8Array): Buffer {
  return Buffer.concat([bytes], padded(bytes.length));
}
