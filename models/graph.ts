// The words in which a family file writes its graph: embedding, norms, linear layers, attention, gate. Each
// appends one node (or two) and returns the name of its result. It decides which operator a stored weight
// needs; it does not know any family, nor the bytes of a weight.
import type { Attribute, ExternalTensor, Node, OnnxGraph } from "./onnx.ts";
import { panelFormats } from "./panels.ts";
import type { StoredMatrix, StoredTensor, StoredVector } from "./weights.ts";

export type Activations = "int8" | "f32";

/** One of the products that share their x. */
export interface LinearTerm {
  readonly path: string;
  readonly weight: StoredMatrix;
  readonly bias?: StoredVector;
}

/** Attribute values of pocket::Linear, in the order of native/linear.h's Activations and Combine. */
const activationNumbers = { int8: 0, f32: 1 } as const;
const combineNumbers = { none: 0, swiglu: 1 } as const;
/** MatMulNBits' attribute accuracy_level. */
const accuracyLevels = { int8: 4, f32: 1 } as const;

export interface GraphOptions {
  readonly name: string;
  readonly externalFile: string;
  /** What linear layers make of their activations: 8 bits per block of 32, or f32 as they are. */
  readonly activations: Activations;
  readonly vocab: number;
}

export interface AttentionShape {
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

/** The graph's inputs, by the names that native/model.cpp binds. `tokens` int64 [T]; `rows` int64 [R]. */
export const graphInputs = { tokens: "tokens", rows: "rows" } as const;
/** `logits` f32 [R, vocab]. */
export const graphOutput = "logits";

/** Values are names of f32 tensors of shape [T, width], or [R, width] behind `pickRows`. */
export class GraphBuilder {
  private readonly nodes: Node[] = [];
  private readonly tensors = new Map<string, ExternalTensor>();

  constructor(private readonly options: GraphOptions) {}

  /** tokens [T] → [T, hidden]. */
  embed(path: string, table: StoredMatrix, tokens: string): string {
    if (table.encoding === "f32")
      return this.node(`${path}/Gather`, "", "Gather", [this.array(table.values), tokens], {
        axis: { int: 0 },
      });
    if (table.encoding === "panels")
      // A tied head reads the same panels.
      return this.node(`${path}/Embedding`, "pocket", "Embedding", [tokens, this.array(table.panels)], {
        rows: { int: table.rows },
        columns: { int: table.columns },
        format: { int: panelFormats.indexOf(table.format) },
      });
    const { rows, columns, bits, block } = table;
    // The LM head reads the same bytes as [N, blocks, block]; the embedding wants its rows whole.
    const quants = this.array({ ...table.quants, dims: [rows, (columns * bits) / 8] }, "/rows");
    const inputs = [quants, tokens, this.array(table.scales)];
    if (table.zeroPoints) inputs.push(this.array(table.zeroPoints));
    return this.node(`${path}/GatherBlockQuantized`, "com.microsoft", "GatherBlockQuantized", inputs, {
      bits: { int: bits },
      block_size: { int: block },
      gather_axis: { int: 0 },
      quantize_axis: { int: 1 },
    });
  }

  /** x [T, columns] → x Wᵀ, [T, rows]. */
  linear(path: string, weight: StoredMatrix, x: string): string {
    return this.linearInto(undefined, { path, weight }, x);
  }

  /** x [T, columns] → x Wᵀ + bias of each term, at most three: one node where the weights are panels. */
  linears(path: string, terms: readonly LinearTerm[], x: string): readonly string[] {
    if (!terms.every(({ weight }) => weight.encoding === "panels"))
      return terms.map((term) => this.linearInto(undefined, term, x));
    const outputs = terms.map((term) => `${term.path}/Linear`);
    this.panelNode(`${path}/Linear`, terms, x, outputs, "none");
    return outputs;
  }

  /** SiLU(x Gᵀ) * (x Uᵀ) (SwiGLU: Shazeer, 2020, arXiv 2002.05202); one node where the weights are panels. */
  gatedLinear(path: string, gate: StoredMatrix, up: StoredMatrix, x: string): string {
    const terms = [
      { path: `${path}/gate_proj`, weight: gate },
      { path: `${path}/up_proj`, weight: up },
    ];
    if (terms.every(({ weight }) => weight.encoding === "panels")) {
      const output = `${path}/gated/Linear`;
      this.panelNode(output, terms, x, [output], "swiglu");
      return output;
    }
    const [gated, upped] = terms.map((term) => this.linearInto(undefined, term, x)) as [string, string];
    const activated = this.node(`${path}/act/QuickGelu`, "com.microsoft", "QuickGelu", [gated], {
      alpha: { float: 1 },
    });
    return this.node(`${path}/act/Mul`, "", "Mul", [activated, upped], {});
  }

  /** RMS norm (Zhang and Sennrich, 2019, arXiv 1910.07467) over the last dimension. */
  norm(path: string, gain: StoredVector, x: string, epsilon: number): string {
    return this.node(
      `${path}/SimplifiedLayerNormalization`,
      "",
      "SimplifiedLayerNormalization",
      [x, this.array(gain.values)],
      { axis: { int: -1 }, epsilon: { float: epsilon }, stash_type: { int: 1 } },
    );
  }

  /** The residual sum and its RMS norm in one pass over memory. */
  addAndNorm(
    path: string,
    gain: StoredVector,
    residual: string,
    x: string,
    epsilon: number,
  ): { sum: string; normed: string } {
    const name = `${path}/SkipSimplifiedLayerNormalization`;
    const normed = `${name}/normed`;
    const sum = `${name}/sum`;
    this.nodes.push({
      name,
      operator: "SkipSimplifiedLayerNormalization",
      domain: "com.microsoft",
      inputs: [x, residual, this.array(gain.values)],
      outputs: [normed, "", "", sum],
      attributes: { epsilon: { float: epsilon } },
    });
    return { sum, normed };
  }

  /** q [T, heads * headDim], k and v [T, kvHeads * headDim], not yet rotated → [T, heads * headDim]. */
  attention(path: string, shape: AttentionShape, q: string, k: string, v: string): string {
    return this.node(`${path}/PagedAttention`, "pocket", "PagedAttention", [q, k, v], {
      layer: { int: shape.layer },
      heads: { int: shape.heads },
      kv_heads: { int: shape.kvHeads },
      head_dim: { int: shape.headDim },
      scale: { float: 1 / Math.sqrt(shape.headDim) },
    });
  }

  /** x [T, width] → the wanted rows, [R, width]. */
  pickRows(path: string, x: string): string {
    return this.node(`${path}/Gather`, "", "Gather", [x, graphInputs.rows], { axis: { int: 0 } });
  }

  /** x [R, hidden] → the graph's output. */
  head(path: string, weight: StoredMatrix, x: string): void {
    this.linearInto(graphOutput, { path, weight }, x);
  }

  finish(): OnnxGraph {
    return {
      name: this.options.name,
      externalFile: this.options.externalFile,
      inputs: [
        { name: graphInputs.tokens, type: "int64", dims: ["T"] },
        { name: graphInputs.rows, type: "int64", dims: ["R"] },
      ],
      outputs: [{ name: graphOutput, type: "float32", dims: ["R", this.options.vocab] }],
      nodes: this.nodes,
      tensors: [...this.tensors.values()],
    };
  }

  private linearInto(output: string | undefined, term: LinearTerm, x: string): string {
    const { path, weight, bias } = term;
    if (weight.encoding === "panels") {
      const name = output ?? `${path}/Linear`;
      this.panelNode(`${path}/Linear`, [term], x, [name], "none");
      return name;
    }
    if (weight.encoding === "f32") {
      const inputs = [x, this.array(weight.values)];
      if (bias) inputs.push(this.array(bias.values));
      return this.node(`${path}/Gemm`, "", "Gemm", inputs, { transB: { int: 1 } }, output);
    }
    const zeroPoints = weight.zeroPoints ? this.array(weight.zeroPoints) : "";
    const inputs = [x, this.array(weight.quants), this.array(weight.scales), zeroPoints, ""];
    inputs.push(bias ? this.array(bias.values) : "");
    while (inputs.at(-1) === "") inputs.pop();
    const attributes: Record<string, Attribute> = {
      K: { int: weight.columns },
      N: { int: weight.rows },
      bits: { int: weight.bits },
      block_size: { int: weight.block },
      accuracy_level: { int: accuracyLevels[this.options.activations] },
    };
    return this.node(`${path}/MatMulNBits`, "com.microsoft", "MatMulNBits", inputs, attributes, output);
  }

  /** Inputs x, then panels and bias (or an empty name) of each term; native/linear_op.h has the attributes. */
  private panelNode(
    name: string,
    terms: readonly LinearTerm[],
    x: string,
    outputs: readonly string[],
    combine: keyof typeof combineNumbers,
  ): void {
    const inputs = [x];
    const attributes: Record<string, Attribute> = {
      columns: { int: terms[0]!.weight.columns },
      weights: { int: terms.length },
      combine: { int: combineNumbers[combine] },
      activations: { int: activationNumbers[this.options.activations] },
    };
    for (const [i, { weight, bias }] of terms.entries()) {
      if (weight.encoding !== "panels") throw new TypeError("pocket::Linear reads panels only");
      inputs.push(this.array(weight.panels), bias ? this.array(bias.values) : "");
      attributes[`rows_${i}`] = { int: weight.rows };
      attributes[`format_${i}`] = { int: panelFormats.indexOf(weight.format) };
    }
    while (inputs.at(-1) === "") inputs.pop();
    this.nodes.push({ name, operator: "Linear", domain: "pocket", inputs, outputs, attributes });
  }

  private node(
    name: string,
    domain: string,
    operator: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, Attribute>>,
    output = name,
  ): string {
    this.nodes.push({ name, operator, domain, inputs, outputs: [output], attributes });
    return output;
  }

  /** Declares a stored array once; two shapes over the same bytes are two initialisers. */
  private array(stored: StoredTensor, suffix = ""): string {
    const name = stored.name + suffix;
    if (!this.tensors.has(name)) this.tensors.set(name, { ...stored, name });
    return name;
  }
}
