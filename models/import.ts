// Imports a GGUF file as a model folder: weights.bin, two graphs, tokenizer, manifest. The folder is written under a
// temporary name in the models directory and renamed when it is complete, so an interrupted import leaves no model.
import { randomUUID } from "node:crypto";
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import type { DecoderWeights, Family } from "./families/decoder.ts";
import { type DecoderShapes, readShapes } from "./families/hyperparameters.ts";
import { familyOf } from "./families/registry.ts";
import { GraphBuilder } from "./graph/graph.ts";
import { encodeModel } from "./graph/onnx.ts";
import { WeightsWriter } from "./graph/weights.ts";
import {
  type LinearKind,
  type Manifest,
  manifestFile,
  manifestVersion,
  modelFolderName,
  readManifest,
  type TensorRecord,
  type WeightFormat,
} from "./manifest.ts";
import { type Gguf, openGguf } from "./readers/gguf.ts";
import { TensorSource } from "./readers/tensor-source.ts";
import { readTokenizer } from "./readers/tokenizer.ts";
import { sha256OfFiles } from "./registry/digest.ts";
import { diskError } from "./registry/disk-errors.ts";

export interface ImportProgress {
  readonly label: string;
  readonly bytes: number;
  readonly total: number;
}

export interface ImportOptions {
  readonly file: string;
  readonly id: string;
  readonly weights: WeightFormat;
  /** Default: pocket. */
  readonly linear?: LinearKind;
  /** The models directory. The folder in it is named by modelFolderName; an older one is replaced. */
  readonly into: string;
  /** Where the file came from, for the manifest. */
  readonly origin?: { readonly repo: string; readonly revision: string; readonly licence: string };
  /** The file's SHA-256, if known; else it is computed. */
  readonly sha256?: string;
  readonly onProgress?: (progress: ImportProgress) => void;
  readonly signal?: AbortSignal;
}

const files = {
  weights: "weights.bin",
  graphs: { int8: "graph.int8.onnx", f32: "graph.f32.onnx" },
  tokenizer: "tokenizer.json",
  tokenizerConfig: "tokenizer_config.json",
} as const;

/**
 * Throws BAD_GGUF, UNSUPPORTED_MODEL or DISK_FULL; then no folder was made or changed. Memory stays under about 200 MB for
 * any size of model.
 */
export async function importGguf(options: ImportOptions): Promise<Manifest> {
  const gguf = openGguf(options.file);
  const name = modelFolderName(options.id, options.weights, options.linear);
  const partial = join(options.into, `${name}.partial-${process.pid}-${randomUUID()}`);
  try {
    await mkdir(options.into, { recursive: true });
    await sweepPartials(options.into, name);
    await mkdir(partial);
    await writeFolder(gguf, partial, options);
    const final = join(options.into, name);
    await rm(final, { recursive: true, force: true });
    await rename(partial, final);
    return readManifest(final);
  } catch (cause) {
    await rm(partial, { recursive: true, force: true });
    throw diskError(cause, partial);
  } finally {
    gguf.close();
  }
}

async function writeFolder(gguf: Gguf, folder: string, options: ImportOptions): Promise<void> {
  const architecture = String(gguf.metadata.get("general.architecture") ?? "missing");
  const family = familyOf(architecture);
  const shapes = readShapes(gguf, architecture);
  const tokenizer = readTokenizer(gguf, shapes.context);
  const { weights, records, bytes } = await writeWeights(gguf, family, shapes, folder, options);
  await writeGraphs(family, shapes, weights, folder);
  await writeFile(join(folder, files.tokenizer), JSON.stringify(tokenizer.tokenizer));
  await writeFile(join(folder, files.tokenizerConfig), JSON.stringify(tokenizer.config, null, 2));
  const sourceSha256 = options.sha256 ?? (await digestOf([options.file], "checking the source", options));
  const written = [files.weights, files.graphs.int8, files.graphs.f32].map((file) => join(folder, file));
  const manifest: Manifest = {
    format: manifestVersion,
    id: options.id,
    name: String(gguf.metadata.get("general.name") ?? options.id),
    family: family.name,
    source: { file: basename(options.file), bytes: gguf.bytes, sha256: sourceSha256, ...options.origin },
    shapes: shapesOf(shapes),
    rope: { kind: "half", base: shapes.ropeBase },
    normEpsilon: shapes.normEpsilon,
    splice: true,
    tokens: { bos: tokenizer.bos, eos: [...tokenizer.eos] },
    weights: {
      format: options.weights,
      linear: linearOf(options),
      file: files.weights,
      bytes,
      bitsPerWeight: bitsPerWeight(gguf, records),
      tensors: records,
    },
    graphs: files.graphs,
    digest: await digestOf(written, "computing the digest", options),
  };
  await writeFile(join(folder, manifestFile), JSON.stringify(manifest, null, 2));
}

async function writeWeights(
  gguf: Gguf,
  family: Family,
  shapes: DecoderShapes,
  folder: string,
  options: ImportOptions,
): Promise<{ weights: DecoderWeights; records: TensorRecord[]; bytes: number }> {
  const total = [...gguf.tensors.values()].reduce((sum, tensor) => sum + tensor.bytes, 0);
  const writer = new WeightsWriter(gguf, join(folder, files.weights), options.weights, linearOf(options));
  let bytes = 0;
  const source = new TensorSource(gguf, writer, (count) => {
    options.signal?.throwIfAborted();
    bytes += count;
    options.onProgress?.({ label: `importing ${options.id}`, bytes, total });
  });
  try {
    const weights = await family.takeWeights(source, shapes);
    source.refuseUnused(family.name);
    return { weights, records: writer.records, bytes: writer.bytes };
  } finally {
    writer.close();
  }
}

async function writeGraphs(
  family: Family,
  shapes: DecoderShapes,
  weights: DecoderWeights,
  folder: string,
): Promise<void> {
  for (const kind of ["int8", "f32"] as const) {
    const builder = new GraphBuilder({
      name: family.name,
      externalFile: files.weights,
      activations: kind,
      vocab: shapes.vocab,
    });
    family.writeGraph(builder, shapes, weights);
    await writeFile(join(folder, files.graphs[kind]), encodeModel(builder.finish()));
  }
}

function linearOf({ linear = "pocket" }: ImportOptions): LinearKind {
  return linear;
}

function digestOf(paths: readonly string[], label: string, options: ImportOptions): Promise<string> {
  let bytes = 0;
  return sha256OfFiles(paths, (count) => {
    options.signal?.throwIfAborted();
    bytes += count;
    options.onProgress?.({ label, bytes, total: 0 });
  });
}

function shapesOf(shapes: DecoderShapes): Manifest["shapes"] {
  const { layers, hidden, ffn, heads, kvHeads, headDim, vocab, context } = shapes;
  return { layers, hidden, ffn, heads, kvHeads, headDim, vocab, context };
}

function bitsPerWeight(gguf: Gguf, records: readonly TensorRecord[]): number {
  let bits = 0;
  let values = 0;
  for (const { name, bytes } of records) {
    const { dims } = gguf.tensors.get(name)!;
    if (dims.length < 2) continue;
    bits += bytes * 8;
    values += dims.reduce((product, size) => product * size, 1);
  }
  return Math.round((bits / values) * 1000) / 1000;
}

/** Removes temporary folders whose import died. */
async function sweepPartials(into: string, name: string): Promise<void> {
  const prefix = `${name}.partial-`;
  for (const entry of await readdir(into)) {
    if (!entry.startsWith(prefix) || isAlive(Number.parseInt(entry.slice(prefix.length), 10))) continue;
    await rm(join(into, entry), { recursive: true, force: true });
  }
}

function isAlive(processId: number): boolean {
  try {
    // Signal 0 only checks that the process exists.
    process.kill(processId, 0);
    return true;
  } catch {
    return false;
  }
}
