// A tiny model with seeded random weights, a byte-level tokenizer and a ChatML template. It is written as a GGUF file and
// imported like a real one, in less than a second. Its text is noise.
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { DecoderShapes } from "../../models/families/hyperparameters.ts";
import { importGguf } from "../../models/import.ts";
import { type LinearKind, modelFolderName, readManifest, type WeightFormat } from "../../models/manifest.ts";
import { blockTypes } from "../../models/quantisation/block-types.ts";
import { f16Bits } from "../../models/quantisation/half.ts";
import { bytesOf, isPlain, type TensorType, tensorLayouts } from "../../models/readers/ggml.ts";
import { encodeGguf, type WritableTensor, type WritableValue } from "./gguf-writer.ts";
import { type Random, seeded } from "./random.ts";
import { tinyTokenizer } from "./tiny-tokenizer.ts";

export interface TinyOptions extends Omit<DecoderShapes, "vocab" | "normEpsilon"> {
  readonly id: string;
  readonly seed: number;
  readonly family: "qwen2" | "llama";
  /** LM head and embedding are one tensor. */
  readonly tied: boolean;
  /** "f32": all tensors are F32. "mixed": matrices of several block types, as in real files. */
  readonly source: "f32" | "mixed";
  readonly weights: WeightFormat;
  readonly linear: LinearKind;
  /** Added to the metadata, or overriding it, for tests of refusals. */
  readonly metadata: Readonly<Record<string, WritableValue>>;
}

export const tinyDefaults: TinyOptions = {
  id: "tiny",
  seed: 1,
  family: "qwen2",
  layers: 2,
  hidden: 64,
  ffn: 256,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  context: 2048,
  ropeBase: 10_000,
  tied: false,
  source: "f32",
  weights: "f32",
  linear: "pocket",
  metadata: {},
};

/**
 * The folder of the tiny model in `directory`, imported unless it was imported with the same options. Concurrent tests need
 * separate directories.
 */
export async function ensureTinyModel(
  directory: string,
  options: Partial<TinyOptions> = {},
): Promise<string> {
  const chosen = { ...tinyDefaults, ...options };
  const folder = join(directory, modelFolderName(chosen.id, chosen.weights, chosen.linear));
  const bytes = tinyGguf(chosen);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  if (wasMadeFrom(folder, sha256)) return folder;
  await mkdir(directory, { recursive: true });
  const scratch = await mkdtemp(join(directory, "gguf-"));
  const file = join(scratch, `${chosen.id}.gguf`);
  try {
    await writeFile(file, bytes);
    const { id, weights, linear } = chosen;
    await importGguf({ file, id, weights, linear, into: directory, sha256 });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
  return folder;
}

/** Deterministic: the same bytes for the same options on every machine. */
export function tinyGguf(options: Partial<TinyOptions> = {}): Uint8Array {
  const chosen = { ...tinyDefaults, ...options };
  const tokenizer = tinyTokenizer(chosen.family);
  const entries = { ...metadata(chosen), ...tokenizer.metadata, ...chosen.metadata };
  return encodeGguf(entries, tensors(chosen, tokenizer.tokens));
}

function wasMadeFrom(folder: string, sha256: string): boolean {
  try {
    return readManifest(folder).source.sha256 === sha256;
  } catch {
    return false;
  }
}

function metadata(options: TinyOptions): Record<string, WritableValue> {
  const { family } = options;
  return {
    "general.architecture": family,
    "general.name": `Tiny ${family}, seed ${options.seed}`,
    [`${family}.block_count`]: options.layers,
    [`${family}.context_length`]: options.context,
    [`${family}.embedding_length`]: options.hidden,
    [`${family}.feed_forward_length`]: options.ffn,
    [`${family}.attention.head_count`]: options.heads,
    [`${family}.attention.head_count_kv`]: options.kvHeads,
    [`${family}.attention.key_length`]: options.headDim,
    [`${family}.attention.value_length`]: options.headDim,
    [`${family}.rope.freq_base`]: { float: options.ropeBase },
    [`${family}.attention.layer_norm_rms_epsilon`]: { float: 1e-6 },
  };
}

function tensors(options: TinyOptions, vocab: number): WritableTensor[] {
  const { hidden, ffn } = options;
  const queries = options.heads * options.headDim;
  const keys = options.kvHeads * options.headDim;
  const random = seeded(options.seed);
  const mixed = (type: TensorType) => (options.source === "mixed" ? type : "F32");
  const matrix = (
    name: string,
    rows: number,
    columns: number,
    type: TensorType,
    gain = 1,
  ): WritableTensor => {
    // Rows of unit gain keep the size of activations; uniform noise of width w has variance w²/3.
    const spread = gain * Math.sqrt(3 / columns);
    const chosen = columns % tensorLayouts[type].values === 0 ? type : "F32";
    return {
      name,
      dims: [columns, rows],
      type: chosen,
      bytes: noise(random, chosen, rows * columns, spread),
    };
  };
  const vector = (name: string, length: number, centre: number, spread: number): WritableTensor => {
    const values = Float32Array.from({ length }, () => centre + spread * (2 * random() - 1));
    return { name, dims: [length], type: "F32", bytes: new Uint8Array(values.buffer) };
  };
  const layer = (prefix: string): WritableTensor[] => [
    vector(`${prefix}.attn_norm.weight`, hidden, 1, 0.1),
    matrix(`${prefix}.attn_q.weight`, queries, hidden, mixed("Q5_0"), 2),
    matrix(`${prefix}.attn_k.weight`, keys, hidden, mixed("Q4_1"), 2),
    matrix(`${prefix}.attn_v.weight`, keys, hidden, mixed("Q8_0")),
    ...(options.family === "qwen2"
      ? [
          vector(`${prefix}.attn_q.bias`, queries, 0, 0.5),
          vector(`${prefix}.attn_k.bias`, keys, 0, 0.5),
          vector(`${prefix}.attn_v.bias`, keys, 0, 0.2),
        ]
      : []),
    matrix(`${prefix}.attn_output.weight`, hidden, queries, mixed("Q4_0")),
    vector(`${prefix}.ffn_norm.weight`, hidden, 1, 0.1),
    matrix(`${prefix}.ffn_gate.weight`, ffn, hidden, mixed("Q5_1")),
    matrix(`${prefix}.ffn_up.weight`, ffn, hidden, mixed("F16")),
    matrix(`${prefix}.ffn_down.weight`, hidden, ffn, mixed("Q6_K")),
  ];
  return [
    matrix("token_embd.weight", vocab, hidden, mixed("Q5_0"), 8),
    ...Array.from({ length: options.layers }, (_, index) => layer(`blk.${index}`)).flat(),
    vector("output_norm.weight", hidden, 1, 0.1),
    ...(options.tied ? [] : [matrix("output.weight", vocab, hidden, mixed("Q8_0"), 3)]),
  ];
}

/** Random values in about [-spread, spread): random codes under one scale for block types. */
function noise(random: Random, type: TensorType, count: number, spread: number): Uint8Array {
  const bytes = new Uint8Array(bytesOf(type, count));
  const view = new DataView(bytes.buffer);
  if (type === "F32") {
    for (let i = 0; i < count; i++) view.setFloat32(4 * i, spread * (2 * random() - 1), true);
    return bytes;
  }
  if (type === "F16") {
    for (let i = 0; i < count; i++) view.setUint16(2 * i, f16Bits(spread * (2 * random() - 1)), true);
    return bytes;
  }
  if (isPlain(type)) throw new RangeError(`the tiny model has no ${type} tensors`);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Math.floor(random() * 256);
  const { bytes: step, bits, scaleAt, minimumAt, zeroPoint = (2 ** bits - 1) / 2, sub } = blockTypes[type];
  if (sub?.minima) throw new RangeError(`the tiny model has no ${type} tensors`);
  // Sub-scales are signed bytes: up to 128.
  const maxCode = sub ? zeroPoint * 128 : zeroPoint;
  for (let at = 0; at < bytes.length; at += step) {
    view.setUint16(at + scaleAt, f16Bits(spread / maxCode), true);
    if (minimumAt !== undefined) view.setUint16(at + minimumAt, f16Bits(-spread), true);
  }
  return bytes;
}
