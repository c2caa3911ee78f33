// Runs a graph of one or two nodes over given arrays in onnxruntime-node, to check how an operator reads its inputs.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InferenceSession, Tensor } from "onnxruntime-node";
import {
  type ElementType,
  type ExternalTensor,
  encodeModel,
  type Node,
  type Port,
} from "../../models/graph/onnx.ts";

export interface Initialiser {
  readonly name: string;
  readonly dims: readonly number[];
  readonly values: Float32Array | Uint8Array;
}

export interface SmallGraph {
  readonly nodes: readonly Node[];
  readonly initialisers: readonly Initialiser[];
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
}

export async function openSmallGraph(graph: SmallGraph): Promise<InferenceSession> {
  const folder = mkdtempSync(join(tmpdir(), "pocket-graph-"));
  const tensors: ExternalTensor[] = [];
  const parts: Buffer[] = [];
  let offset = 0;
  for (const { name, dims, values } of graph.initialisers) {
    const type: ElementType = values instanceof Float32Array ? "float32" : "uint8";
    tensors.push({ name, type, dims, offset, bytes: values.byteLength });
    const padded = Math.ceil(values.byteLength / 4096) * 4096;
    parts.push(Buffer.concat([new Uint8Array(values.buffer, values.byteOffset, values.byteLength)], padded));
    offset += padded;
  }
  writeFileSync(join(folder, "weights.bin"), Buffer.concat(parts));
  const { nodes, inputs, outputs } = graph;
  const bytes = encodeModel({ name: "small", nodes, inputs, outputs, tensors, externalFile: "weights.bin" });
  writeFileSync(join(folder, "graph.onnx"), bytes);
  try {
    return await InferenceSession.create(join(folder, "graph.onnx"), {
      intraOpNumThreads: 2,
      logSeverityLevel: 3,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function floats(values: Float32Array, dims: readonly number[]): Tensor {
  return new Tensor("float32", values, dims);
}

export function integers(values: readonly number[]): Tensor {
  return new Tensor("int64", BigInt64Array.from(values, BigInt), [values.length]);
}
