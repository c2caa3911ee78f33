// From the parts that a runner counts to the lines of the `profile` bench: which nodes make a line, what a step of so
// many rows multiplies in it, which stored bytes it reads at least, and the lines of all conditions side by side.
// Nothing is measured here.
import type { Manifest } from "../../models/manifest.ts";
import type { ProfileEntry } from "../../src/engine/addon.ts";
import type { Row } from "../support/results.ts";

/** Milliseconds of one step. */
export interface StepTime {
  /** Of the runner's parts, by name. */
  readonly parts: ReadonlyMap<string, number>;
  /** Of the addon's computing. */
  readonly addon: number;
  /** From the call in JavaScript until its promise was settled. */
  readonly whole: number;
}

/** One step: `rows` new tokens of one sequence behind `depth` others, the logits of the last of them wanted. */
export interface StepShape {
  readonly rows: number;
  readonly depth: number;
}

interface Line {
  readonly label: string;
  readonly ms: (step: StepTime) => number;
  /** Multiply-adds of a step. */
  readonly work?: (step: StepShape, shapes: Manifest["shapes"]) => number;
  /** Tensors of the source file that are read whole in every step. */
  readonly tensors?: RegExp;
}

const nodes = (pattern: RegExp) => (step: StepTime) => sum(step, (name) => pattern.test(name));

/** Where the nodes of models/families/decoder.ts go, by their names. */
const linears: readonly Line[] = [
  {
    label: "gate and up, SiLU, product",
    ms: nodes(/\/mlp\/Linear$|\/(gate|up)_proj\//),
    work: (step, { hidden, ffn, layers }) => behindAttention(step, layers) * 2 * hidden * ffn,
    tensors: /\.ffn_(gate|up)\./,
  },
  {
    label: "down",
    ms: nodes(/\/down_proj\//),
    work: (step, { hidden, ffn, layers }) => behindAttention(step, layers) * hidden * ffn,
    tensors: /\.ffn_down\./,
  },
  {
    label: "q, k, v",
    ms: nodes(/\/(q|k|v|qkv)_proj\//),
    work: ({ rows }, { hidden, heads, kvHeads, headDim, layers }) =>
      rows * layers * hidden * (heads + 2 * kvHeads) * headDim,
    tensors: /\.attn_(q|k|v)\./,
  },
  {
    label: "o",
    ms: nodes(/\/o_proj\//),
    work: (step, { hidden, heads, headDim, layers }) =>
      behindAttention(step, layers) * hidden * heads * headDim,
    tensors: /\.attn_output\./,
  },
  {
    label: "LM head, one row",
    ms: nodes(/^\/lm_head\//),
    work: (_, { hidden, vocab }) => hidden * vocab,
    tensors: /^output\./,
  },
];
const attention: Line = {
  label: "attention, rotation, writing cells",
  ms: nodes(/\/PagedAttention$/),
  work: ({ rows, depth }, { heads, headDim, layers }) =>
    2 * layers * heads * headDim * rows * (depth + (rows + 1) / 2),
};
const embedding: Line = { label: "embedding", ms: nodes(/\/embed_tokens\//) };
const graph = (step: StepTime) => step.parts.get("graph") ?? 0;
const sampler = (step: StepTime) => step.parts.get("sampler") ?? 0;
const ours = (step: StepTime) => sum(step, (name) => name.startsWith("/"));

const lines: readonly Line[] = [
  ...linears,
  attention,
  embedding,
  { label: "runtime around these nodes, row picks", ms: (step) => graph(step) - ours(step) },
  { label: "the graph", ms: graph },
  { label: "sampler", ms: sampler },
  { label: "rest of the addon's step", ms: (step) => step.addon - graph(step) - sampler(step) },
  { label: "way from JavaScript and back", ms: (step) => step.whole - step.addon },
  { label: "the whole step", ms: (step) => step.whole },
  { label: "of these: norms, residual sums", ms: (step) => step.parts.get("norms") ?? 0 },
];

export interface LineValue {
  readonly part: string;
  /** One a step. */
  readonly ms: readonly number[];
  /** The whole step's are those of all its parts; and so are its bytes. */
  readonly multiplyAdds: number;
  /** Of weights and of the cells in front. */
  readonly bytes: number;
  readonly readsCells: boolean;
}

export function linesOf(
  steps: readonly StepTime[],
  shape: StepShape,
  { shapes, weights }: Pick<Manifest, "shapes" | "weights">,
  cellBytes: number,
): LineValue[] {
  const isTied = !weights.tensors.some(({ name }) => name === "output.weight");
  const bytesOf = (line: Line) => {
    if (line === attention) return shape.depth * cellBytes;
    const read = weights.tensors.filter(({ name }) => {
      const own = isTied && name === "token_embd.weight" ? "output.weight" : name;
      return line.tensors?.test(own) ?? false;
    });
    return read.reduce((sum, { bytes }) => sum + bytes, 0);
  };
  const valued = [...linears, attention];
  const all = (of: (line: Line) => number) => valued.reduce((sum, line) => sum + of(line), 0);
  const workOf = (line: Line) => line.work?.(shape, shapes) ?? 0;
  return lines.map((line) => {
    const isWhole = line.label === "the graph" || line.label === "the whole step";
    return {
      part: line.label,
      ms: steps.map(line.ms),
      multiplyAdds: isWhole ? all(workOf) : workOf(line),
      bytes: isWhole ? all(bytesOf) : bytesOf(line),
      readsCells: line === attention,
    };
  });
}

/** What came between two looks at the same runner's parts. */
export function between(
  before: readonly ProfileEntry[],
  after: readonly ProfileEntry[],
): Map<string, number> {
  return new Map(after.map(({ name, ms }, index) => [name, ms - before[index]!.ms]));
}

/**
 * A line for every part, a column for every condition: milliseconds, share of the step, rate. What all conditions have
 * in common is the heading of the first column.
 */
export function sideBySide(rows: readonly Row[]): Row[] {
  const labels = ["model", "weights", "kv"];
  const [same, varying] = [true, false].map((isSame) =>
    labels.filter((key) => (new Set(rows.map((row) => row[key])).size === 1) === isSame),
  ) as [string[], string[]];
  const title = same.map((key) => rows[0]?.[key]).join(", ") || "part";
  const found = new Map<string, Record<string, string | number>>();
  for (const row of rows) {
    const threads = row.threads === 1 ? "1 thread" : `${row.threads} threads`;
    const column = [...varying.map((key) => row[key]), row.row, threads].join(", ");
    const line = found.get(String(row.part)) ?? { [title]: row.part! };
    line[column] = cell(row);
    found.set(String(row.part), line);
  }
  return [...found.values()];
}

function cell({ ms, share, "GMAC/s": rate, "GB/s": read }: Row): string {
  const milliseconds = typeof ms === "number" ? [`${shown(ms)} ms`] : [];
  const portion = typeof share === "number" ? [`${(share * 100).toFixed(1)} %`] : [];
  const rates = [
    ...(typeof rate === "number" ? [`${shown(rate)} G/s`] : []),
    ...(typeof read === "number" ? [`${shown(read)} GB/s`] : []),
  ];
  return [...milliseconds, ...portion, ...rates].join(", ");
}

function shown(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** Rows computed behind the attention of their layer: in the last layer only the wanted row. */
function behindAttention({ rows }: StepShape, layers: number): number {
  return (layers - 1) * rows + 1;
}

function sum({ parts }: StepTime, has: (name: string) => boolean): number {
  let total = 0;
  for (const [name, ms] of parts) if (has(name)) total += ms;
  return total;
}
