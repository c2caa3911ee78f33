import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decodeModel, encodeModel } from "../../models/graph/onnx.ts";
import { importGguf } from "../../models/import.ts";
import { readManifest, type WeightFormat } from "../../models/manifest.ts";
import { openGguf } from "../../models/readers/gguf.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { openRunner } from "../../src/engine/addon.ts";
import type { PocketError } from "../../src/errors.ts";
import { ensureTinyModel, type TinyOptions, tinyGguf } from "../support/tiny-model.ts";
import { openColdPrefill } from "./cold-prefill.ts";
import { naiveLogits } from "./naive-decoder.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-import-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const prompt = Array.from({ length: 24 }, (_, i) => (i * 37 + 11) % 270);

/** Largest difference of logits between the imported folder and naiveLogits of its source file. */
async function distance(options: Partial<TinyOptions>, kind: "int8" | "f32"): Promise<number> {
  const source = join(folder, "source.gguf");
  writeFileSync(source, tinyGguf(options));
  const gguf = openGguf(source);
  const expected = naiveLogits(gguf, prompt);
  gguf.close();
  const cold = await openColdPrefill(await ensureTinyModel(folder, options), kind);
  const rows = [23, 0, 7];
  const logits = await cold.logits(prompt, rows);
  await cold.close();
  const wanted = rows.flatMap((row) => expected[row]!);
  expect(logits.length).toBe(wanted.length);
  return wanted.reduce((worst, value, i) => Math.max(worst, Math.abs(value - logits[i]!)), 0);
}

/** Largest difference between the addon's logprobs and those of `stock` logits, over its 100 likeliest per token. */
async function addonDistance(made: string, kind: "int8" | "f32", stock: Float32Array): Promise<number> {
  const root = packageRoot();
  const { shapes, rope, graphs } = readManifest(made);
  const runner = await openRunner(
    {
      model: { ...shapes, graph: join(made, graphs[kind]), ropeBase: rope.base },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: 8,
      pageSize: 16,
      kvType: "f32",
      threads: 2,
    },
    root,
  );
  // A step without logits: after the last attention every tensor has no rows.
  const unread = runner.newSequence();
  runner.splice(unread, [{ start: 0, end: 0, count: 2 }]);
  await runner.step([{ sequence: unread, tokens: Int32Array.of(1, 2) }]);
  const sequence = runner.newSequence();
  runner.splice(sequence, [{ start: 0, end: 0, count: prompt.length }]);
  const tokens = Int32Array.from(prompt);
  const { outcomes } = await runner.step([
    { sequence, tokens, targets: new Int32Array(tokens.length), targetTop: 100 },
  ]);
  await runner.close();
  const { targetTopTokens, targetTopLogprobs } = outcomes[0]!;
  expect(targetTopTokens.length).toBe(100 * prompt.length);
  const { vocab } = shapes;
  const sums = prompt.map((_, row) =>
    Math.log(stock.subarray(row * vocab, (row + 1) * vocab).reduce((sum, logit) => sum + Math.exp(logit), 0)),
  );
  return targetTopTokens.reduce((worst, token, i) => {
    const row = Math.floor(i / 100);
    return Math.max(worst, Math.abs(stock[row * vocab + token]! - sums[row]! - targetTopLogprobs[i]!));
  }, 0);
}

describe("an imported model", () => {
  for (const family of ["qwen2", "llama"] as const)
    for (const tied of [false, true]) {
      const base = { family, tied, id: `tiny-${family}-${tied}`, seed: 3 };
      const what = `${family}${tied ? " with tied embedding" : ""}`;
      it(`computes the logits of plain loops over the same file (${what}, f32)`, async () => {
        expect(await distance({ ...base, source: "f32", weights: "f32" }, "f32")).toBeLessThan(2e-4);
        expect(await distance({ ...base, source: "mixed", weights: "f32" }, "f32")).toBeLessThan(2e-4);
      });
      it(`stays near them with exact weights of every block type (${what})`, async () => {
        // The F16 matrix is rounded to 8 bits; all others are equal bit for bit.
        const exact = { ...base, source: "mixed", weights: "exact" } as const;
        expect(await distance(exact, "f32")).toBeLessThan(0.1);
        // MatMulNBits rounds offsets too, and in the int8 graph activations.
        expect(await distance({ ...exact, linear: "ort" }, "f32")).toBeLessThan(0.25);
        expect(await distance({ ...exact, linear: "ort" }, "int8")).toBeLessThan(1);
      });
      it(`computes the same in the addon as with stock operators (${what}, exact)`, async () => {
        const folderOf = (options: Partial<TinyOptions>) => ensureTinyModel(folder, { ...base, ...options });
        const made = await folderOf({ source: "mixed", weights: "exact" });
        const cold = await openColdPrefill(made, "f32");
        const rows = prompt.map((_, row) => row);
        const stock = await cold.logits(prompt, rows);
        await cold.close();
        expect(await addonDistance(made, "f32", stock)).toBeLessThan(2e-3);
        expect(await addonDistance(made, "int8", stock)).toBeLessThan(1);
      });
    }

  it("has a manifest with the error of each tensor", async () => {
    const made = await ensureTinyModel(folder, { id: "recorded", source: "mixed", weights: "exact" });
    const { shapes, weights, tokens, rope, splice } = readManifest(made);
    expect(shapes).toMatchObject({ layers: 2, hidden: 64, heads: 4, kvHeads: 2, headDim: 16, vocab: 279 });
    expect([rope.base, splice, tokens.bos]).toEqual([10_000, true, null]);
    const recorded = Object.fromEntries(weights.tensors.map((tensor) => [tensor.name, tensor]));
    expect(weights.linear).toBe("pocket");
    for (const [name, stored] of [
      ["token_embd", "q5_0"],
      ["output", "q8_0"],
      ["blk.0.attn_q", "q5_0"],
      ["blk.0.attn_k", "q4_1"],
      ["blk.0.attn_output", "q4_0"],
      ["blk.0.ffn_gate", "q5_1"],
      ["blk.1.ffn_down", "q6_k"],
    ])
      expect(recorded[`${name}.weight`]).toMatchObject({
        stored: `${stored} panels`,
        bitTrue: true,
        maxErrorSteps: 0,
      });
    const { bitTrue, maxErrorSteps, stored } = recorded["blk.0.ffn_up.weight"]!;
    expect([bitTrue, stored]).toEqual([false, "q8_0 panels"]);
    expect(maxErrorSteps).toBeLessThan(0.501);
  });

  it("with linear: ort has its own folder, and its manifest says so", async () => {
    const options = { id: "recorded", source: "mixed", weights: "exact", linear: "ort" } as const;
    const made = await ensureTinyModel(folder, options);
    expect(made).toBe(join(folder, "recorded.exact.ort"));
    const { weights } = readManifest(made);
    expect(weights.linear).toBe("ort");
    const recorded = Object.fromEntries(weights.tensors.map((tensor) => [tensor.name, tensor]));
    for (const name of ["attn_k", "ffn_gate", "ffn_up"]) {
      const { bitTrue, maxErrorSteps, stored } = recorded[`blk.0.${name}.weight`]!;
      expect([bitTrue, stored]).toEqual([false, "int8 block 32 zero points"]);
      expect(maxErrorSteps).toBeLessThan(0.501);
    }
    expect(recorded["blk.0.attn_output.weight"]!.stored).toBe("int4 block 32");
    expect(recorded["blk.0.ffn_down.weight"]!.stored).toBe("int8 block 16");
  });

  it("has the size of its weight format, and loads in each", async () => {
    const bits: Record<string, number> = {};
    for (const weights of ["f32", "int8", "int4"] satisfies WeightFormat[]) {
      const made = await ensureTinyModel(folder, { id: "sized", source: "mixed", weights });
      bits[weights] = readManifest(made).weights.bitsPerWeight;
      const cold = await openColdPrefill(made, "int8");
      const logits = await cold.logits(prompt, [23]);
      await cold.close();
      expect(logits.every(Number.isFinite)).toBe(true);
    }
    expect(bits.f32).toBe(32);
    // 32 codes and a 16-bit scale; the tiny vocabulary of 279 rows is padded to 288.
    expect(bits.int8).toBeGreaterThan(8.5);
    expect(bits.int8).toBeLessThan(8.6);
    // Embedding and head stay as the file has them, and are much of the tiny model.
    expect(bits.int4).toBeGreaterThan(5);
    expect(bits.int4).toBeLessThan(6.5);
  });

  it("has graphs that decode and encode to the same bytes, with aligned tensors that do not overlap", async () => {
    const made = await ensureTinyModel(folder, {
      id: "graphs",
      tied: true,
      source: "mixed",
      weights: "exact",
    });
    const bytes = readFileSync(join(made, "graph.int8.onnx"));
    const graph = decodeModel(bytes);
    expect(Buffer.from(encodeModel(graph)).equals(bytes)).toBe(true);
    expect(
      graph.nodes
        .filter(({ operator }) => operator === "PagedAttention")
        .map(({ attributes }) => attributes.layer),
    ).toEqual([{ int: 0 }, { int: 1 }]);
    const spans = graph.tensors.map(({ offset, bytes: length }) => [offset, offset + length] as const);
    expect(spans.every(([start]) => start % 4096 === 0)).toBe(true);
    const distinct = [...new Map(spans).entries()].sort(([a], [b]) => a - b);
    for (const [i, [start]] of distinct.entries())
      if (i > 0) expect(start).toBeGreaterThanOrEqual(distinct[i - 1]![1]);
    // The tied table is one array, read by embedding and head.
    expect(spans.length).toBe(distinct.length);
    const readers = graph.nodes.filter(({ inputs }) => inputs.includes("token_embd.weight.panels"));
    expect(readers.map(({ operator }) => operator)).toEqual(["Embedding", "Linear"]);
  });

  it("of the tiny kind is imported again only when its options change", async () => {
    const made = await ensureTinyModel(folder, { id: "again" });
    const first = readManifest(made).digest;
    rmSync(join(made, "tokenizer.json"));
    await ensureTinyModel(folder, { id: "again" });
    expect(existsSync(join(made, "tokenizer.json"))).toBe(false);
    await ensureTinyModel(folder, { id: "again", seed: 2 });
    expect(existsSync(join(made, "tokenizer.json"))).toBe(true);
    expect(readManifest(made).digest).not.toBe(first);
  });
});

async function refusal(bytes: Uint8Array): Promise<PocketError> {
  const into = join(folder, "refused");
  mkdirSync(into, { recursive: true });
  const file = join(folder, "refused.gguf");
  writeFileSync(file, bytes);
  const cause = await importGguf({ file, id: "refused", weights: "exact", into }).then(
    () => undefined,
    (failure: unknown) => failure,
  );
  expect(readdirSync(into)).toEqual([]);
  return cause as PocketError;
}

/** The tiny file with a name replaced by another of the same length. */
function renamed(from: string, to: string): Uint8Array {
  const bytes = Buffer.from(tinyGguf());
  const at = bytes.indexOf(from);
  expect([at > 0, to.length]).toEqual([true, from.length]);
  bytes.write(to, at);
  return bytes;
}

const withMetadata = (metadata: TinyOptions["metadata"]) => tinyGguf({ metadata });

/** A qwen2 file with the architecture name llama: its biases would be ignored. */
function disguised(): Uint8Array {
  const claims = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 2048,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 256,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": { float: 1e-6 },
  };
  return withMetadata(claims);
}

function notFinite(): Uint8Array {
  const bytes = Buffer.from(tinyGguf());
  bytes.writeFloatLE(Number.NaN, bytes.length - 64);
  return bytes;
}

describe("a refused import leaves no folder and reports", () => {
  const unsupported: readonly (readonly [string, () => Uint8Array, RegExp])[] = [
    [
      "which architectures are served",
      () => withMetadata({ "general.architecture": "rwkv9" }),
      /'rwkv9' is not served; qwen2 and llama/,
    ],
    [
      "that recurrent architectures are not served",
      () => withMetadata({ "general.architecture": "qwen35" }),
      /'qwen35' is not served/,
    ],
    [
      "how wide a sliding window is",
      () => withMetadata({ "qwen2.attention.sliding_window": 512 }),
      /sliding window of 512 tokens/,
    ],
    ["how many experts there are", () => withMetadata({ "qwen2.expert_count": 8 }), /8 experts/],
    [
      "which rotary scheme cannot be shifted",
      () => withMetadata({ "qwen2.rope.scaling.type": "dynamic", "qwen2.rope.scaling.factor": { float: 2 } }),
      /'dynamic', factor 2\), a rotary scheme that cannot be shifted/,
    ],
    [
      "that scaled rotary positions are not served",
      () => withMetadata({ "qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": { float: 4 } }),
      /'linear', factor 4/,
    ],
    [
      "that partial rotation is not served",
      () => withMetadata({ "qwen2.rope.dimension_count": 8 }),
      /rotates 8 of 16 dimensions/,
    ],
    [
      "which pre-tokenizers are known",
      () => withMetadata({ "tokenizer.ggml.pre": "dbrx" }),
      /'dbrx'; qwen2, smollm/,
    ],
    [
      "which tokenizer is read",
      () => withMetadata({ "tokenizer.ggml.model": "llama" }),
      /tokenizer is 'llama'; byte-level BPE/,
    ],
    [
      "which tensors would be ignored",
      disguised,
      /6 tensors that a plain llama model does not \(first: 'blk\.0\.attn_q\.bias'\)/,
    ],
  ];
  for (const [what, make, message] of unsupported)
    it(what, async () => {
      const cause = await refusal(make());
      expect(cause).toMatchObject({ code: "UNSUPPORTED_MODEL" });
      expect(cause.message).toMatch(message);
    });

  const broken: readonly (readonly [string, () => Uint8Array, RegExp])[] = [
    [
      "which metadata is missing",
      () => renamed("qwen2.block_count", "qwen2.block_cnt__"),
      /qwen2\.block_count is missing/,
    ],
    ["which count is impossible", () => withMetadata({ "qwen2.attention.head_count": 0 }), /head_count is 0/],
    [
      "which heads do not divide",
      () => withMetadata({ "qwen2.attention.head_count_kv": 3 }),
      /4 heads do not divide among 3/,
    ],
    [
      "which tensor has other dimensions",
      () => withMetadata({ "qwen2.feed_forward_length": 128 }),
      /'blk\.0\.ffn_gate\.weight' is \[64,256\]; the metadata asks for \[64,128\]/,
    ],
    [
      "which tensor is missing",
      () => renamed("blk.1.ffn_up.weight", "blk.7.ffn_up.weight"),
      /no tensor 'blk\.1\.ffn_up\.weight'/,
    ],
    [
      "which tensor has a number that is not finite",
      notFinite,
      /'output\.weight' holds a number that is not finite/,
    ],
    [
      "which token does not exist",
      () => withMetadata({ "tokenizer.ggml.eos_token_id": 9999 }),
      /eos_token_id is 9999; there are 279 tokens/,
    ],
    ["where a truncated file ends", () => tinyGguf().subarray(0, 200_000), /the file ends at 200000/],
  ];
  for (const [what, make, message] of broken)
    it(what, async () => {
      const cause = await refusal(make());
      expect(cause).toMatchObject({ code: "BAD_GGUF" });
      expect(cause.message).toMatch(message);
    });

  it("nothing but the abort when it is cancelled", async () => {
    const into = join(folder, "cancelled");
    const file = join(folder, "cancelled.gguf");
    writeFileSync(file, tinyGguf());
    const stop = new AbortController();
    let reports = 0;
    const onProgress = () => {
      if (++reports === 5) stop.abort();
    };
    const running = importGguf({ file, id: "c", weights: "exact", into, onProgress, signal: stop.signal });
    await expect(running).rejects.toThrow(/abort/);
    expect(readdirSync(into)).toEqual([]);
  });

  it("nothing about a temporary folder of a dead import, which it removes", async () => {
    const into = join(folder, "swept");
    mkdirSync(join(into, "tiny.f32.partial-999999999-x"), { recursive: true });
    await ensureTinyModel(into);
    expect(readdirSync(into)).toEqual(["tiny.f32"]);
  });
});

describe("readManifest", () => {
  it("reports which folder has no model", () => {
    expect(() => readManifest(join(folder, "absent.exact"))).toThrow(/'absent\.exact' is not in/);
  });

  it("says which command to run where an earlier version imported the folder", async () => {
    const made = await ensureTinyModel(folder, { id: "older" });
    const file = join(made, "manifest.json");
    const manifest = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify({ ...manifest, format: 1 }));
    expect(() => readManifest(made)).toThrow(/'older' in .* earlier version .*pocket pull/);
    await ensureTinyModel(folder, { id: "older" });
    expect(readManifest(made).format).toBe(3);
  });

  it("reports which field of a manifest is wrong", async () => {
    const made = await ensureTinyModel(folder, { id: "damaged" });
    const file = join(made, "manifest.json");
    const manifest = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify({ ...manifest, shapes: { ...manifest.shapes, heads: "four" } }));
    expect(() => readManifest(made)).toThrow(/shapes\.heads/);
    writeFileSync(file, "{");
    expect(() => readManifest(made)).toThrow(/is not a manifest/);
  });
});
