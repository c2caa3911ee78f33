// manifest.json of a model folder: what a server must know about the model and cannot read from the graph. Numbers are
// counts unless their name says bytes.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { pocketError } from "../src/errors.ts";

export const manifestFile = "manifest.json";

/** `exact`: the file's values; `int8`, `int4`: requantised; `f32`: widened (quantisation/weight-formats.ts). */
export const weightFormats = ["exact", "int8", "int4", "f32"] as const;
export type WeightFormat = (typeof weightFormats)[number];

/** Operator of the linear layers: pocket::Linear, or ONNX Runtime's MatMulNBits. Under f32 it is Gemm for both. */
export const linearKinds = ["pocket", "ort"] as const;
export type LinearKind = (typeof linearKinds)[number];

/** Version of the manifest. Folders of earlier versions must be imported again. */
export const manifestVersion = 3;

const count = z.int().positive();

const tensorRecordSchema = z.object({
  /** Name in the source file. */
  name: z.string(),
  /** GGUF type. */
  source: z.string(),
  /** How it is stored, such as `q4_k panels` or `int8 block 32 zero points`. */
  stored: z.string(),
  /** The stored values equal the file's, bit for bit. */
  bitTrue: z.boolean(),
  /** Largest difference to the file's values, in steps of the stored format; rounding gives 0.5. */
  maxErrorSteps: z.number().nonnegative(),
  bytes: count,
});
export type TensorRecord = z.infer<typeof tensorRecordSchema>;

const manifestSchema = z.object({
  format: z.literal(manifestVersion),
  id: z.string().min(1),
  name: z.string(),
  /** A key of families/registry.ts at the time of the import. */
  family: z.string().min(1),
  source: z.object({
    file: z.string(),
    bytes: count,
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    repo: z.string().optional(),
    revision: z.string().optional(),
    licence: z.string().optional(),
  }),
  shapes: z.object({
    layers: count,
    hidden: count,
    ffn: count,
    heads: count,
    kvHeads: count,
    headDim: count,
    /** Rows of the LM head; the tokenizer may have fewer tokens. */
    vocab: count,
    /** Context length that the model was trained for. */
    context: count,
  }),
  /** Half layout: dimensions d and d + headDim / 2 are a rotary pair. */
  rope: z.object({ kind: z.literal("half"), base: z.number().positive() }),
  normEpsilon: z.number().positive(),
  /** Keys may be shifted to other positions after an edit. */
  splice: z.literal(true),
  tokens: z.object({ bos: z.int().nonnegative().nullable(), eos: z.array(z.int().nonnegative()).min(1) }),
  weights: z.object({
    format: z.enum(weightFormats),
    linear: z.enum(linearKinds),
    file: z.string(),
    bytes: count,
    /** Bits of all matrices, scales included, divided by their values. */
    bitsPerWeight: z.number().positive(),
    tensors: z.array(tensorRecordSchema),
  }),
  /** File names of the graphs with 8-bit and with f32 activations of linear layers. */
  graphs: z.object({ int8: z.string(), f32: z.string() }),
  /** SHA-256 of weights file, int8 graph and f32 graph, concatenated: identifies the model in KV files. */
  digest: z.string().regex(/^[0-9a-f]{64}$/),
});
export type Manifest = z.infer<typeof manifestSchema>;

/** Name of the folder of a model under the models directory. */
export function modelFolderName(id: string, format: WeightFormat, linear: LinearKind = "pocket"): string {
  return linear === "ort" && format !== "f32" ? `${id}.${format}.ort` : `${id}.${format}`;
}

/**
 * Throws MODEL_NOT_IMPORTED when the folder has no manifest, MODEL_OUTDATED when an earlier version of Pocket imported it,
 * BAD_MANIFEST when the manifest is not valid.
 */
export function readManifest(folder: string): Manifest {
  const file = join(folder, manifestFile);
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch {
    throw pocketError("MODEL_NOT_IMPORTED", modelNameOf(folder), folder);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw pocketError("BAD_MANIFEST", file, (cause as Error).message);
  }
  refuseOutdated(json, folder);
  const parsed = manifestSchema.safeParse(json);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0]!;
  throw pocketError("BAD_MANIFEST", file, `${issue.path.join(".") || "the document"}: ${issue.message}`);
}

function refuseOutdated(json: unknown, folder: string): void {
  const { format, id } = (json ?? {}) as { readonly format?: unknown; readonly id?: unknown };
  if (typeof format !== "number" || format >= manifestVersion) return;
  throw pocketError("MODEL_OUTDATED", String(id ?? modelNameOf(folder)), folder, format, manifestVersion);
}

function modelNameOf(folder: string): string {
  return folder.split(/[/\\]/).filter(Boolean).at(-1) ?? folder;
}
