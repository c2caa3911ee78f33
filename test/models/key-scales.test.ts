import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { decodeModel, encodeModel, type Node } from "../../models/graph/onnx.ts";
import { readManifest } from "../../models/manifest.ts";
import { keyScales } from "../../models/quantisation/key-scales.ts";
import { openGguf } from "../../models/readers/gguf.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { type KvType, openRunner } from "../../src/engine/addon.ts";
import { seeded } from "../support/random.ts";
import { ensureTinyModel, tinyGguf } from "../support/tiny-model.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-key-scales-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("the key scale of a rotary pair", () => {
  it("is the length of its bias plus four standard deviations of its two rows times a normed stream", () => {
    const gain = Float32Array.of(2, 0.5);
    // One head of 4: pairs (0, 2) and (1, 3).
    const weight = Float32Array.of(0.5, 0, 0, 0, 0, 4, 0, 0);
    const bias = Float32Array.of(3, 0, 4, 0);
    expect(keyScales({ weight, bias }, gain, 4)).toEqual([Math.fround(5 + 4 * Math.hypot(1, 2)), 1]);
    expect(keyScales({ weight }, gain, 4)).toEqual([Math.fround(4 * Math.hypot(1, 2)), 1]);
  });

  it("is rarely exceeded by the keys of random streams, and at most ten times their maximum, in every head", () => {
    const [headDim, hidden] = [16, 64];
    const random = seeded(5);
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    const numbers = (count: number, deviation: () => number) =>
      Float32Array.from({ length: count }, () => normal() * deviation());
    const gain = numbers(hidden, () => 1);
    const weight = numbers(2 * headDim * hidden, () => 0.3);
    const bias = numbers(2 * headDim, () => Math.exp(2 * normal()));
    const scales = keyScales({ weight, bias }, gain, headDim);
    expect(scales).toHaveLength(headDim);
    const reached = scales.map(() => 0);
    let beyond = 0;
    for (let round = 0; round < 200; round++) {
      const x = gain.map((g) => g * normal());
      const key = bias.map((b, row) => x.reduce((sum, v, i) => sum + v * weight[row * hidden + i]!, b));
      for (const [pair, scale] of scales.entries()) {
        const first = Math.floor(pair / 8) * headDim + (pair % 8);
        const length = Math.hypot(key[first]!, key[first + 8]!);
        reached[pair] = Math.max(reached[pair]!, length);
        if (length > scale) beyond++;
      }
    }
    expect(beyond).toBeLessThan(5);
    for (const [pair, scale] of scales.entries()) expect(reached[pair]!).toBeGreaterThan(scale / 10);
  });
});

describe.each(["qwen2", "llama"] as const)("an imported %s", (family) => {
  it("has the key scales of its weights in both graphs", async () => {
    const made = await ensureTinyModel(folder, { id: family, family, source: "f32" });
    const { headDim, kvHeads, hidden, layers } = readManifest(made).shapes;
    const file = join(folder, "source.gguf");
    writeFileSync(file, tinyGguf({ id: family, family, source: "f32" }));
    const gguf = openGguf(file);
    const values = (name: string) => {
      const tensor = gguf.tensors.get(name)!;
      return new Float32Array(gguf.read(tensor, 0, tensor.bytes).slice().buffer);
    };
    for (let layer = 0; layer < layers; layer++) {
      const [weight, gain] = [values(`blk.${layer}.attn_k.weight`), values(`blk.${layer}.attn_norm.weight`)];
      // In a llama file the two rows of a rotary pair are neighbours.
      const ordered = weight.map((_, at) => {
        const [row, column] = [Math.floor(at / hidden), at % hidden];
        const [head, d] = [Math.floor(row / headDim), row % headDim];
        const from = head * headDim + 2 * (d % (headDim / 2)) + Math.floor(d / (headDim / 2));
        return weight[(family === "llama" ? from : row) * hidden + column]!;
      });
      const bias = family === "llama" ? {} : { bias: values(`blk.${layer}.attn_k.bias`) };
      const wanted = keyScales({ weight: ordered, ...bias }, gain, headDim);
      expect(wanted).toHaveLength((kvHeads * headDim) / 2);
      for (const graph of ["int8", "f32"] as const)
        expect(scalesOf(join(made, readManifest(made).graphs[graph]), layer)).toEqual(wanted);
    }
    gguf.close();
  });
});

describe("int8 pages", () => {
  it("return the keys of f32 pages, each rotary pair within half a step of its scale", async () => {
    const made = await ensureTinyModel(folder);
    const { shapes, graphs } = readManifest(made);
    const { headDim, kvHeads } = shapes;
    const random = seeded(6);
    const scales = Array.from({ length: (kvHeads * headDim) / 2 }, () =>
      Math.fround(2 ** (8 * random() - 4)),
    );
    const graph = decodeModel(readFileSync(join(made, graphs.f32)));
    const spread = join(made, "graph.spread.onnx");
    writeFileSync(spread, encodeModel({ ...graph, nodes: graph.nodes.map((node) => scaled(node, scales)) }));
    expect(scalesOf(spread, 1)).toEqual(scales);
    const [wanted, got] = [await keysOf(made, spread, "f32"), await keysOf(made, spread, "int8")];
    expect(wanted).toEqual(await keysOf(made, join(made, graphs.f32), "f32"));
    expect(got).toHaveLength(40 * kvHeads * headDim);
    for (let at = 0; at < wanted.length; at += headDim) {
      const scale = (d: number) => scales[((at / headDim) % kvHeads) * (headDim / 2) + (d % (headDim / 2))]!;
      const key = wanted.subarray(at, at + headDim);
      const step = key.reduce((most, x, d) => Math.max(most, Math.abs(x) / scale(d)), 0) / 127;
      for (const [d, x] of key.entries())
        expect(Math.abs(got[at + d]! - x)).toBeLessThanOrEqual(0.501 * step * scale(d));
    }
  });

  it("are refused for a graph without key scales, as earlier imports wrote them, or with a scale of 0", async () => {
    const made = await ensureTinyModel(folder, { id: "older" });
    const graph = decodeModel(readFileSync(join(made, readManifest(made).graphs.f32)));
    const file = join(made, "graph.other.onnx");
    const refused = async (nodes: readonly Node[], why: RegExp) => {
      writeFileSync(file, encodeModel({ ...graph, nodes }));
      await expect(keysOf(made, file, "int8")).rejects.toThrow(why);
    };
    const unscaled = graph.nodes.map((node) => {
      const { pair_scales, ...attributes } = node.attributes;
      return { ...node, attributes };
    });
    await refused(unscaled, /pair_scales/);
    await refused(
      graph.nodes.map((node) => scaled(node, [0, ...Array(15).fill(1)])),
      /pair scale of layer 0 is 0/,
    );
    await refused(
      graph.nodes.map((node) => scaled(node, [1])),
      /1 pair scales for layer 0/,
    );
  });
});

function scaled(node: Node, scales: readonly number[]): Node {
  if (node.operator !== "PagedAttention") return node;
  return { ...node, attributes: { ...node.attributes, pair_scales: { floats: scales } } };
}

function scalesOf(graph: string, layer: number): readonly number[] {
  const nodes = decodeModel(readFileSync(graph)).nodes.filter(
    ({ operator }) => operator === "PagedAttention",
  );
  return (nodes[layer]!.attributes.pair_scales as { readonly floats: readonly number[] }).floats;
}

/** (40, kvHeads, headDim): layer 0's keys of a fixed prompt. */
async function keysOf(made: string, graph: string, kvType: KvType): Promise<Float32Array> {
  const { shapes, rope } = readManifest(made);
  const root = packageRoot();
  const model = { ...shapes, graph, ropeBase: rope.base };
  const runtime = runtimeLibrary(root);
  const runner = await openRunner(
    { model, runtime, device: "cpu", pages: 4, pageSize: 16, kvType, threads: 1 },
    root,
  );
  const sequence = runner.newSequence();
  runner.splice(sequence, [{ start: 0, end: 0, count: 40 }]);
  await runner.step([{ sequence, tokens: Int32Array.from({ length: 40 }, (_, i) => (i * 37 + 11) % 270) }]);
  const { keys } = runner.inspect(sequence, 0);
  await runner.close();
  return keys!;
}
