// Tensor bytes to f32 values, for every type that is read. Rounds where and as the `gguf` package of PyPI does, so the
// results are equal bit for bit (test/models/dequantise.test.ts).
import { isPlain, type PlainType, type TensorType } from "../readers/ggml.ts";
import { blockTypes, readBlocks } from "./block-types.ts";
import { f16Values } from "./half.ts";

/** `count` values; a multiple of the type's block. A fresh array. */
export function dequantise(type: TensorType, bytes: Uint8Array, count: number): Float32Array {
  if (isPlain(type)) return widen(type, bytes, count);
  const { group, zeroPoint } = blockTypes[type];
  const { codes, scales, offsets } = readBlocks(type, bytes, count);
  const values = new Float32Array(count);
  for (let b = 0, at = 0; b < scales.length; b++) {
    const scale = scales[b]!;
    if (zeroPoint === undefined) {
      const offset = offsets[b]!;
      for (const end = at + group; at < end; at++) values[at] = Math.fround(scale * codes[at]!) + offset;
    } else {
      for (const end = at + group; at < end; at++) values[at] = scale * (codes[at]! - zeroPoint);
    }
  }
  return values;
}

/** Converts `count` values of tensor bytes. `check` sees every float before it is rounded, and may throw. */
export type Convert<Form> = (bytes: Uint8Array, count: number, check: (values: Float32Array) => void) => Form;

/** Dequantises, passes the floats to `check`, and quantises them again. */
export function throughFloats<Form>(
  type: TensorType,
  quantise: (values: Float32Array) => Form,
): Convert<Form> {
  return (bytes, count, check) => {
    const values = dequantise(type, bytes, count);
    check(values);
    return quantise(values);
  };
}

function widen(type: PlainType, bytes: Uint8Array, count: number): Float32Array {
  const values = new Float32Array(count);
  if (type === "F32") new Uint8Array(values.buffer).set(bytes.subarray(0, count * 4));
  else if (type === "BF16") {
    const bits = new Uint32Array(values.buffer);
    for (let i = 0; i < count; i++) bits[i] = (bytes[2 * i]! << 16) | (bytes[2 * i + 1]! << 24);
  } else for (let i = 0; i < count; i++) values[i] = f16Values[bytes[2 * i]! | (bytes[2 * i + 1]! << 8)]!;
  return values;
}
