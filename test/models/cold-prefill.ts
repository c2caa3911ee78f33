// Runs a model folder's graph in onnxruntime-node, without the addon: pocket::PagedAttention is replaced by ONNX Runtime's
// GroupQueryAttention over the prompt alone, operators that read panels by Gemm and Gather over f32 values
// (stock-linear.ts). It checks import and graph together by a cold prefill in independent code. No cache, one prompt.
import { randomUUID } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-node";
import { decodeModel, encodeModel, type Node, type OnnxGraph } from "../../models/graph/onnx.ts";
import { readManifest } from "../../models/manifest.ts";
import { withStockLinear } from "./stock-linear.ts";

export interface ColdPrefill {
  /** Logits (rows.length, vocab) after the given rows of the prompt. */
  logits(tokens: readonly number[], rows: readonly number[]): Promise<Float32Array>;
  close(): Promise<void>;
}

export async function openColdPrefill(folder: string, kind: "int8" | "f32"): Promise<ColdPrefill> {
  const manifest = readManifest(folder);
  const graph = decodeModel(readFileSync(join(folder, manifest.graphs[kind])));
  // In the model's folder: ONNX Runtime refuses external data outside the folder of the graph, links included.
  const file = join(folder, `graph.cold-${randomUUID()}.onnx`);
  const weights = join(folder, `weights.cold-${randomUUID()}.bin`);
  writeFileSync(file, encodeModel(withStockAttention(withStockLinear(graph, folder, weights))));
  const session = await InferenceSession.create(file, { intraOpNumThreads: 2, logSeverityLevel: 3 }).finally(
    () => {
      rmSync(file);
      rmSync(weights, { force: true });
    },
  );
  return {
    logits: async (tokens, rows) => {
      const result = await session.run({
        tokens: new Tensor("int64", BigInt64Array.from(tokens, BigInt), [tokens.length]),
        rows: new Tensor("int64", BigInt64Array.from(rows, BigInt), [rows.length]),
        axis: new Tensor("int64", BigInt64Array.of(0n), [1]),
        last: new Tensor("int32", Int32Array.of(tokens.length - 1), [1]),
        length: new Tensor("int32", Int32Array.of(tokens.length), [1]),
        ...rotations(tokens.length, manifest.shapes.headDim, manifest.rope.base),
      });
      return result.logits!.data as Float32Array;
    },
    close: () => session.release(),
  };
}

function withStockAttention(graph: OnnxGraph): OnnxGraph {
  return {
    ...graph,
    nodes: graph.nodes.flatMap((node) =>
      node.operator === "PagedAttention" ? stockAttention(node) : [node],
    ),
    inputs: [
      ...graph.inputs,
      { name: "axis", type: "int64", dims: [1] },
      { name: "last", type: "int32", dims: [1] },
      { name: "length", type: "int32", dims: [1] },
      { name: "cos", type: "float32", dims: ["P", "half"] },
      { name: "sin", type: "float32", dims: ["P", "half"] },
    ],
  };
}

function stockAttention(node: Node): Node[] {
  const { heads, kv_heads, scale } = node.attributes;
  const widened = node.inputs.map((input) => `${node.name}/wide/${input}`);
  return [
    ...node.inputs.map((input, i) => stock("Unsqueeze", "", widened[i]!, [input, "axis"], [widened[i]!])),
    stock(
      "GroupQueryAttention",
      "com.microsoft",
      `${node.name}/stock`,
      [...widened, "", "", "last", "length", "cos", "sin"],
      [`${node.name}/attended`, `${node.name}/keys`, `${node.name}/values`],
      { num_heads: heads!, kv_num_heads: kv_heads!, scale: scale!, do_rotary: { int: 1 } },
    ),
    stock("Squeeze", "", `${node.name}/squeezed`, [`${node.name}/attended`, "axis"], node.outputs),
  ];
}

function stock(
  operator: string,
  domain: string,
  name: string,
  inputs: readonly string[],
  outputs: readonly string[],
  attributes: Node["attributes"] = {},
): Node {
  return { name: `${name}/${operator}`, operator, domain, inputs, outputs, attributes };
}

function rotations(length: number, headDim: number, base: number): { cos: Tensor; sin: Tensor } {
  const half = headDim / 2;
  const angle = (i: number) => Math.floor(i / half) * base ** ((-2 * (i % half)) / headDim);
  const table = (f: (angle: number) => number) =>
    new Tensor(
      "float32",
      Float32Array.from({ length: length * half }, (_, i) => f(angle(i))),
      [length, half],
    );
  return { cos: table(Math.cos), sin: table(Math.sin) };
}
