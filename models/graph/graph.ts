// Builds the graph of a family: embedding, norms, linear layers, attention, gate. Each method appends one node or two and
// returns the name of its result. The operator depends on how a weight is stored: pocket::Linear and pocket::Embedding
// for panels, ONNX Runtime's own operators otherwise.

import { panelFormats } from "../quantisation/panels.ts";
import type { Attribute, ExternalTensor, Node, OnnxGraph } from "./onnx.ts";
import type { StoredMatrix, StoredTensor, StoredVector } from "./weights.ts";

export type Activations = "int8" | "f32";

/** One of several products with the same x. */
export interface LinearTerm {
  readonly path: string;
  readonly weight: StoredMatrix;
  readonly bias?: StoredVector;
}

type PanelTerm = LinearTerm & { readonly weight: Extract<StoredMatrix, { encoding: "panels" }> };

/** Input of a block: the RMS norm of `residual` + `branch`. */
export interface Stream {
  readonly path: string;
  readonly residual: string;
  readonly branch: string | undefined;
  readonly gain: StoredVector;
  readonly epsilon: number;
}

/** `x` itself, or the norm of `stream`. */
interface PanelInput {
  readonly x?: string;
  readonly stream?: Stream;
  /** The sum of the stream is an output too. */
  readonly keepsSum?: boolean;
  /** Two terms, combined as SiLU(first) * second. */
  readonly gated?: boolean;
}

/** Values of pocket::Linear's attribute `activations`, in the order of native/linear/linear.h's Activations. */
const activationNumbers = { int8: 0, f32: 1 } as const;
/** Values of MatMulNBits' attribute accuracy_level. */
const accuracyLevels = { int8: 4, f32: 1 } as const;

export interface GraphOptions {
  readonly name: string;
  readonly externalFile: string;
  /** int8: linear layers quantise their activations to 8 bits per block of 32. */
  readonly activations: Activations;
  readonly vocab: number;
}

export interface AttentionShape {
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** (kvHeads, headDim / 2), above 0: int8 pages divide the layer's keys by them (native/kv/store.h). */
  readonly pairScales: readonly number[];
}

/** The graph's inputs, by the names that native/runtime/model.cpp binds. `tokens` int64 [T]; `rows` int64 [R]. */
export const graphInputs = { tokens: "tokens", rows: "rows" } as const;
/** `logits` f32 [R, vocab]. */
export const graphOutput = "logits";

/** Values are names of f32 tensors of shape [T, width], or [R, width] after `pickRows`. */
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
      // A tied LM head reads the same panels.
      return this.node(`${path}/Embedding`, "pocket", "Embedding", [tokens, this.array(table.panels)], {
        rows: { int: table.rows },
        columns: { int: table.columns },
        format: { int: panelFormats.indexOf(table.format) },
      });
    const { rows, columns, bits, block } = table;
    // A tied LM head reads the same bytes as [N, blocks, block]; the embedding needs whole rows.
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
    return this.plainLinear({ path, weight }, x, `${path}/Linear`);
  }

  /** norm(stream) Wᵀ + bias for each term, at most three. `sum` is residual + branch. */
  normedLinears(
    path: string,
    terms: readonly LinearTerm[],
    stream: Stream,
  ): { readonly outputs: readonly string[]; readonly sum: string } {
    if (allPanels(terms)) {
      const outputs = terms.map((term) => `${term.path}/Linear`);
      return { outputs, sum: this.panelNode(path, terms, outputs, { stream, keepsSum: true }) };
    }
    const { normed, sum } = this.norm(stream);
    return { outputs: terms.map((term) => this.plainLinear(term, normed, `${term.path}/Linear`)), sum };
  }

  /** SiLU(norm(stream) Gᵀ) * (norm(stream) Uᵀ) (SwiGLU: Shazeer, 2020, arXiv 2002.05202). */
  normedGate(
    path: string,
    gate: StoredMatrix,
    up: StoredMatrix,
    stream: Stream,
  ): { readonly gated: string; readonly sum: string } {
    const terms = [
      { path: `${path}/gate_proj`, weight: gate },
      { path: `${path}/up_proj`, weight: up },
    ];
    if (allPanels(terms)) {
      const gated = `${path}/gated/Linear`;
      return { gated, sum: this.panelNode(path, terms, [gated], { stream, keepsSum: true, gated: true }) };
    }
    const { normed, sum } = this.norm(stream);
    const [gated, upped] = terms.map((term) => this.plainLinear(term, normed, `${term.path}/Linear`));
    const activated = this.node(`${path}/act/QuickGelu`, "com.microsoft", "QuickGelu", [gated!], {
      alpha: { float: 1 },
    });
    return { gated: this.node(`${path}/act/Mul`, "", "Mul", [activated, upped!], {}), sum };
  }

  /** q [T, heads * headDim], k and v [T, kvHeads * headDim], not yet rotated → [T, heads * headDim]. */
  attention(path: string, shape: AttentionShape, q: string, k: string, v: string): string {
    return this.node(`${path}/PagedAttention`, "pocket", "PagedAttention", [q, k, v], {
      layer: { int: shape.layer },
      heads: { int: shape.heads },
      kv_heads: { int: shape.kvHeads },
      head_dim: { int: shape.headDim },
      scale: { float: 1 / Math.sqrt(shape.headDim) },
      pair_scales: { floats: shape.pairScales },
    });
  }

  /** x [T, width] → its rows of the input `rows`, [R, width]. */
  pickRows(path: string, x: string): string {
    return this.node(`${path}/Gather`, "", "Gather", [x, graphInputs.rows], { axis: { int: 0 } });
  }

  /** norm(stream) [R, hidden] → the graph's output. */
  head(path: string, weight: StoredMatrix, stream: Stream): void {
    if (weight.encoding === "panels") this.panelNode(path, [{ path, weight }], [graphOutput], { stream });
    else this.plainLinear({ path, weight }, this.norm(stream).normed, graphOutput);
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

  /** RMS norm (Zhang and Sennrich, 2019, arXiv 1910.07467) of the stream, by operators of ONNX Runtime. */
  private norm({ path, residual, branch, gain, epsilon }: Stream): { normed: string; sum: string } {
    if (branch === undefined) {
      const name = `${path}/SimplifiedLayerNormalization`;
      const attributes = { axis: { int: -1 }, epsilon: { float: epsilon }, stash_type: { int: 1 } };
      const inputs = [residual, this.array(gain.values)];
      return {
        normed: this.node(name, "", "SimplifiedLayerNormalization", inputs, attributes),
        sum: residual,
      };
    }
    const name = `${path}/SkipSimplifiedLayerNormalization`;
    const [normed, sum] = [`${name}/normed`, `${name}/sum`];
    this.nodes.push({
      name,
      operator: "SkipSimplifiedLayerNormalization",
      domain: "com.microsoft",
      inputs: [branch, residual, this.array(gain.values)],
      outputs: [normed, "", "", sum],
      attributes: { epsilon: { float: epsilon } },
    });
    return { normed, sum };
  }

  private plainLinear(term: LinearTerm, x: string, output: string): string {
    const { path, weight, bias } = term;
    if (weight.encoding === "panels") {
      this.panelNode(path, [{ ...term, weight }], [output], { x });
      return output;
    }
    if (weight.encoding === "f32") {
      const inputs = [x, this.array(weight.values)];
      if (bias) inputs.push(this.array(bias.values));
      return this.node(`${path}/Gemm`, "", "Gemm", inputs, { transB: { int: 1 } }, output);
    }
    const zeroPoints = weight.zeroPoints ? this.array(weight.zeroPoints) : "";
    const inputs = [x, this.array(weight.quants), this.array(weight.scales), zeroPoints, ""];
    inputs.push(bias ? this.array(bias.values) : "");
    const attributes: Record<string, Attribute> = {
      K: { int: weight.columns },
      N: { int: weight.rows },
      bits: { int: weight.bits },
      block_size: { int: weight.block },
      accuracy_level: { int: accuracyLevels[this.options.activations] },
    };
    return this.node(
      `${path}/MatMulNBits`,
      "com.microsoft",
      "MatMulNBits",
      trimmed(inputs),
      attributes,
      output,
    );
  }

  /** One pocket::Linear (inputs, outputs, attributes: native/runtime/linear_op.h). Returns the name of the stream's sum. */
  private panelNode(
    path: string,
    terms: readonly PanelTerm[],
    outputs: readonly string[],
    { x, stream, gated = false, keepsSum = false }: PanelInput,
  ): string {
    const sum = stream?.branch === undefined ? "" : `${path}/sum`;
    const weights = Array.from({ length: 3 }, (_, i) => terms[i]).flatMap((term) =>
      term ? [this.array(term.weight.panels), term.bias ? this.array(term.bias.values) : ""] : ["", ""],
    );
    const inputs = [stream?.residual ?? x!, ...weights];
    if (stream) inputs.push(this.array(stream.gain.values), stream.branch ?? "");
    const attributes: Record<string, Attribute> = {
      columns: { int: terms[0]!.weight.columns },
      weights: { int: terms.length },
      combine: { int: gated ? 1 : 0 },
      sum: { int: keepsSum && sum !== "" ? 1 : 0 },
      activations: { int: activationNumbers[this.options.activations] },
      epsilon: { float: stream?.epsilon ?? 0 },
    };
    for (const [i, { weight }] of terms.entries()) {
      attributes[`rows_${i}`] = { int: weight.rows };
      attributes[`format_${i}`] = { int: panelFormats.indexOf(weight.format) };
    }
    const padded = [...outputs, "", ""].slice(0, 3);
    this.nodes.push({
      name: `${path}/Linear`,
      operator: "Linear",
      domain: "pocket",
      inputs: trimmed(inputs),
      outputs: trimmed([...padded, keepsSum ? sum : ""]),
      attributes,
    });
    return sum === "" ? inputs[0]! : sum;
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

  /** Declares a stored array once; a second shape over the same bytes is an initialiser with a suffix. */
  private array(stored: StoredTensor, suffix = ""): string {
    const name = stored.name + suffix;
    if (!this.tensors.has(name)) this.tensors.set(name, { ...stored, name });
    return name;
  }
}

function allPanels(terms: readonly LinearTerm[]): terms is readonly PanelTerm[] {
  return terms.every(({ weight }) => weight.encoding === "panels");
}

/** `names` without the empty ones at the end. */
function trimmed(names: readonly string[]): readonly string[] {
  return names.slice(0, names.findLastIndex((name) => name !== "") + 1);
}
