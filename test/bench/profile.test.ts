// The lines of the `profile` bench: what a step multiplies and reads in each, counted a second time the slow way.
import { expect, test } from "vitest";
import { between, linesOf, type StepTime, sideBySide } from "../../bench/profile/parts.ts";
import type { Manifest } from "../../models/manifest.ts";

const shapes = { layers: 3, hidden: 8, ffn: 20, heads: 4, kvHeads: 2, headDim: 4, vocab: 50, context: 100 };

function weightsOf(names: readonly string[]): Manifest["weights"] {
  const tensors = names.map((name, place) => ({
    name,
    source: "Q4_0",
    stored: "q4_0 panels",
    bitTrue: true,
    maxErrorSteps: 0,
    bytes: 1000 + place,
  }));
  return { format: "exact", linear: "pocket", file: "weights.bin", bytes: 1, bitsPerWeight: 4, tensors };
}

const untied = weightsOf([
  "token_embd.weight",
  "blk.0.attn_q.weight",
  "blk.0.ffn_gate.weight",
  "output.weight",
]);
const tied = weightsOf(["token_embd.weight", "blk.0.ffn_down.weight"]);

const step: StepTime = {
  parts: new Map([
    ["graph", 10],
    ["norms", 0.5],
    ["/model/embed_tokens/Embedding", 0.1],
    ["/model/layers.0/attn/qkv_proj/Linear", 1],
    ["/model/layers.0/attn/PagedAttention", 2],
    ["/model/layers.0/attn/o_proj/Linear", 0.25],
    ["/model/layers.0/mlp/Linear", 3],
    ["/model/layers.0/mlp/down_proj/Linear", 1.5],
    ["/lm_head/Linear", 2],
    ["sampler", 0.75],
  ]),
  addon: 11,
  whole: 11.5,
};

const lineOf = (part: string, lines: ReturnType<typeof linesOf>) =>
  lines.find((line) => line.part.startsWith(part))!;

test("each node's time is in one line, and what is left over in those around it", () => {
  const lines = linesOf([step], { rows: 1, depth: 0 }, { shapes, weights: untied }, 64);
  const times = Object.fromEntries(lines.map(({ part, ms }) => [part.split(",")[0], ms[0]]));
  expect(times).toMatchObject({
    "gate and up": 3,
    down: 1.5,
    q: 1,
    o: 0.25,
    "LM head": 2,
    attention: 2,
    embedding: 0.1,
    "the graph": 10,
    sampler: 0.75,
    "rest of the addon's step": 0.25,
    "way from JavaScript and back": 0.5,
    "the whole step": 11.5,
    "of these: norms": 0.5,
  });
  expect(times["runtime around these nodes"]).toBeCloseTo(0.15, 9);
});

test("multiply-adds are those of every matrix, row and pair of query and key, counted one by one", () => {
  for (const [rows, depth] of [
    [1, 0],
    [1, 30],
    [7, 0],
    [7, 30],
  ] as const) {
    const { layers, hidden, ffn, heads, kvHeads, headDim, vocab } = shapes;
    const expected = { gate: 0, down: 0, q: 0, o: 0, attention: 0 };
    for (let layer = 0; layer < layers; layer++) {
      for (let row = 0; row < rows; row++) {
        expected.q += hidden * (heads * headDim) + 2 * hidden * (kvHeads * headDim);
        for (let key = 0; key <= depth + row; key++) expected.attention += 2 * heads * headDim;
        if (layer === layers - 1 && row < rows - 1) continue;
        expected.o += heads * headDim * hidden;
        expected.gate += 2 * hidden * ffn;
        expected.down += ffn * hidden;
      }
    }
    const lines = linesOf([step], { rows, depth }, { shapes, weights: untied }, 64);
    for (const [part, count] of Object.entries(expected))
      expect(lineOf(part, lines).multiplyAdds).toBe(count);
    expect(lineOf("LM head", lines).multiplyAdds).toBe(hidden * vocab);
    const all = Object.values(expected).reduce((sum, count) => sum + count, hidden * vocab);
    expect(lineOf("the graph", lines).multiplyAdds).toBe(all);
  }
});

test("bytes are those of a part's tensors and of the cells in front; a tied embedding is the head's", () => {
  const apart = linesOf([step], { rows: 1, depth: 30 }, { shapes, weights: untied }, 64);
  expect(lineOf("q", apart).bytes).toBe(1001);
  expect(lineOf("gate", apart).bytes).toBe(1002);
  expect(lineOf("LM head", apart).bytes).toBe(1003);
  expect(lineOf("attention", apart).bytes).toBe(30 * 64);
  expect(lineOf("the whole step", apart).bytes).toBe(1001 + 1002 + 1003 + 30 * 64);
  const together = linesOf([step], { rows: 1, depth: 0 }, { shapes, weights: tied }, 64);
  expect(lineOf("LM head", together).bytes).toBe(1000);
  expect(lineOf("the whole step", together).bytes).toBe(2001);
});

test("what lies between two looks is the difference, part by part", () => {
  const look = (ms: number) => [
    { name: "graph", runs: 1, ms },
    { name: "sampler", runs: 1, ms: 2 * ms },
  ];
  expect([...between(look(1), look(4))]).toEqual([
    ["graph", 3],
    ["sampler", 6],
  ]);
});

test("conditions are columns, headed by what differs between them; what they share heads the parts", () => {
  const row = { model: "m", weights: "exact", kv: "f16", threads: 2, row: "decode @ d0", part: "down", n: 3 };
  const rows = [
    { ...row, ms: 1.234, share: 0.5, "GB/s": 30.44 },
    { ...row, ms: 12.34, share: 0.25, threads: 1 },
    { ...row, ms: 123.4, share: 1, row: "pp512 @ d0", "GMAC/s": 300.4 },
    { ...row, part: "memory", "GB/s": 33 },
  ];
  expect(sideBySide(rows)).toEqual([
    {
      "m, exact, f16": "down",
      "decode @ d0, 2 threads": "1.23 ms, 50.0 %, 30.4 GB/s",
      "decode @ d0, 1 thread": "12.3 ms, 25.0 %",
      "pp512 @ d0, 2 threads": "123 ms, 100.0 %, 300 G/s",
    },
    { "m, exact, f16": "memory", "decode @ d0, 2 threads": "33.0 GB/s" },
  ]);
  const kinds = sideBySide([...rows, { ...row, kv: "int8", ms: 1, share: 1 }]);
  expect(Object.keys(kinds[0]!).slice(0, 2)).toEqual(["m, exact", "f16, decode @ d0, 2 threads"]);
  expect(Object.keys(kinds[0]!)).toContain("int8, decode @ d0, 2 threads");
});
