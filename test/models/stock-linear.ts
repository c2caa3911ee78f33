// Replaces every pocket::Linear and pocket::Embedding of a graph by ONNX Runtime's own operators over f32 matrices, which are
// read from the panels and written to a new weights file. Activations stay f32 in both graphs. For small models: all
// matrices are widened, and the other tensors are copied.
import { readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { ExternalTensor, Node, OnnxGraph } from "../../models/graph/onnx.ts";
import { panelFormats } from "../../models/quantisation/panels.ts";
import { readPanels } from "./panel-reader.ts";

/** The graph itself where nothing reads panels; else `file`, in the folder of the graph, is written. */
export function withStockLinear(graph: OnnxGraph, folder: string, file: string): OnnxGraph {
  if (!graph.nodes.some(({ operator }) => isPocket(operator))) return graph;
  const weights = readFileSync(join(folder, graph.externalFile));
  const wide = new Map<string, { dims: readonly number[]; values: Float32Array }>();
  const widen = (name: string, format: number, rows: number, columns: number): string => {
    const { offset, bytes } = graph.tensors.find((tensor) => tensor.name === name)!;
    const panels = weights.subarray(offset, offset + bytes);
    wide.set(name, {
      dims: [rows, columns],
      values: readPanels(panelFormats[format]!, panels, rows, columns),
    });
    return name;
  };
  const nodes = graph.nodes.flatMap((node) => (isPocket(node.operator) ? stockNodes(node, widen) : [node]));
  const tensors: ExternalTensor[] = [];
  const parts: Uint8Array[] = [];
  let end = 0;
  for (const tensor of graph.tensors) {
    const { dims, values } = wide.get(tensor.name) ?? { dims: tensor.dims, values: undefined };
    const bytes = values
      ? new Uint8Array(values.buffer)
      : weights.subarray(tensor.offset, tensor.offset + tensor.bytes);
    tensors.push({ ...tensor, ...(values && { type: "float32" }), dims, offset: end, bytes: bytes.length });
    const padded = Math.ceil(bytes.length / 4096) * 4096;
    parts.push(Buffer.concat([bytes], padded));
    end += padded;
  }
  writeFileSync(file, Buffer.concat(parts));
  return { ...graph, nodes, tensors, externalFile: basename(file) };
}

const isPocket = (operator: string) => operator === "Linear" || operator === "Embedding";

type Widen = (name: string, format: number, rows: number, columns: number) => string;

function stockNodes(node: Node, widen: Widen): Node[] {
  const number = (name: string) => {
    const value = node.attributes[name];
    if (!value || !("int" in value)) throw new TypeError(`${node.name} has no integer ${name}`);
    return value.int;
  };
  const columns = number("columns");
  if (node.operator === "Embedding") {
    const table = widen(node.inputs[1]!, number("format"), number("rows"), columns);
    return [stock("Gather", [table, node.inputs[0]!], node.outputs[0]!)];
  }
  const gated = number("combine") === 1;
  const { x, nodes } = stockNorm(node, number("sum") === 1);
  const products = Array.from({ length: number("weights") }, (_, i) => {
    const matrix = widen(node.inputs[1 + 2 * i]!, number(`format_${i}`), number(`rows_${i}`), columns);
    const inputs = [x, matrix, node.inputs[2 + 2 * i] ?? ""].filter((name) => name !== "");
    const output = gated ? `${node.name}/product_${i}` : node.outputs[i]!;
    return stock("Gemm", inputs, output, { transB: { int: 1 } });
  });
  if (!gated) return [...nodes, ...products];
  const [gate, up] = products.map(({ outputs }) => outputs[0]!) as [string, string];
  const names = { sigmoid: `${node.name}/sigmoid`, silu: `${node.name}/silu` };
  return [
    ...nodes,
    ...products,
    stock("Sigmoid", [gate], names.sigmoid),
    stock("Mul", [gate, names.sigmoid], names.silu),
    stock("Mul", [names.silu, up], node.outputs[0]!),
  ];
}

/** Nodes of the residual sum and its RMS norm; x itself where the node has no gain. */
function stockNorm(node: Node, hasSum: boolean): { x: string; nodes: readonly Node[] } {
  const [gain = "", branch = ""] = node.inputs.slice(7);
  if (gain === "") return { x: node.inputs[0]!, nodes: [] };
  const sum = branch === "" ? node.inputs[0]! : hasSum ? node.outputs[3]! : `${node.name}/sum`;
  const normed = `${node.name}/normed`;
  const epsilon = node.attributes.epsilon!;
  const attributes = { axis: { int: -1 }, epsilon, stash_type: { int: 1 } };
  const nodes = branch === "" ? [] : [stock("Add", [node.inputs[0]!, branch], sum)];
  return {
    x: normed,
    nodes: [...nodes, stock("SimplifiedLayerNormalization", [sum, gain], normed, attributes)],
  };
}

function stock(
  operator: string,
  inputs: readonly string[],
  output: string,
  attributes: Node["attributes"] = {},
): Node {
  return { name: `${output}/${operator}`, operator, domain: "", inputs, outputs: [output], attributes };
}
