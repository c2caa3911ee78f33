// ONNX Runtime's operators over matrices as `linear: ort` stores them: each operator that graph.ts writes, alone, against
// plain loops.
import { describe, expect, it } from "vitest";
import type { Node } from "../../models/graph/onnx.ts";
import { type BlockType, blockTypes, readBlocks } from "../../models/quantisation/block-types.ts";
import { dequantise } from "../../models/quantisation/dequantise.ts";
import { f16Bits } from "../../models/quantisation/half.ts";
import { affine8, type Requantised, searched4 } from "../../models/quantisation/requantise.ts";
import { bytesOf, tensorLayouts } from "../../models/readers/ggml.ts";
import { seeded } from "../support/random.ts";
import { floats, type Initialiser, integers, openSmallGraph } from "./small-graph.ts";

const rows = 48;
const columns = 512;
const random = seeded(7);
const noise = (count: number) => Float32Array.from({ length: count }, () => 2 * random() - 1);

function randomBlocks(type: BlockType): Uint8Array {
  const bytes = Uint8Array.from({ length: bytesOf(type, rows * columns) }, () => random() * 256);
  for (let at = blockTypes[type].scaleAt; at < bytes.length; at += tensorLayouts[type].bytes) {
    const bits = f16Bits((0.5 + random()) / 64);
    bytes[at] = bits & 255;
    bytes[at + 1] = bits >> 8;
  }
  return bytes;
}

interface StoredBlocks {
  readonly codes: Uint8Array;
  readonly scales: Float32Array;
  readonly zeroPoints?: Uint8Array;
  readonly bits: 4 | 8;
  readonly block: number;
}

function initialisers({ codes, scales, zeroPoints, bits, block }: StoredBlocks): Initialiser[] {
  const perRow = columns / block;
  const pack = (bytes: Uint8Array) =>
    bits === 8
      ? bytes
      : Uint8Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i]! | (bytes[2 * i + 1]! << 4));
  const list: Initialiser[] = [
    { name: "quants", dims: [rows, perRow, (block * bits) / 8], values: pack(codes) },
    { name: "quants/rows", dims: [rows, (columns * bits) / 8], values: pack(codes) },
    { name: "scales", dims: [rows, perRow], values: scales },
  ];
  if (zeroPoints) list.push({ name: "zeros", dims: [rows, (perRow * bits) / 8], values: pack(zeroPoints) });
  return list;
}

function node(
  operator: string,
  inputs: readonly string[],
  attributes: Node["attributes"],
  outputs = ["y"],
): Node {
  const domain = operator === "SimplifiedLayerNormalization" || operator === "Gemm" ? "" : "com.microsoft";
  return { name: operator, operator, domain, inputs, outputs, attributes };
}

/** x (count, columns) Wᵀ + bias in double. */
function product(x: Float32Array, w: Float32Array, bias: Float32Array, count: number): number[] {
  return Array.from({ length: count * rows }, (_, at) => {
    const [t, n] = [Math.floor(at / rows), at % rows];
    let sum = bias[n]!;
    for (let k = 0; k < columns; k++) sum += x[t * columns + k]! * w[n * columns + k]!;
    return sum;
  });
}

function largestDifference(actual: Float32Array, reference: readonly number[]): number {
  expect(actual.length).toBe(reference.length);
  return reference.reduce((worst, value, i) => Math.max(worst, Math.abs(value - actual[i]!)), 0);
}

async function linear(
  stored: StoredBlocks,
  values: Float32Array,
  accuracy: number,
  count: number,
): Promise<number> {
  const bias = noise(rows);
  const zeros = stored.zeroPoints ? "zeros" : "";
  const session = await openSmallGraph({
    nodes: [
      node("MatMulNBits", ["x", "quants", "scales", zeros, "", "bias"], {
        K: { int: columns },
        N: { int: rows },
        bits: { int: stored.bits },
        block_size: { int: stored.block },
        accuracy_level: { int: accuracy },
      }),
    ],
    initialisers: [
      ...initialisers(stored).filter(({ name }) => name !== "quants/rows"),
      { name: "bias", dims: [rows], values: bias },
    ],
    inputs: [{ name: "x", type: "float32", dims: ["T", columns] }],
    outputs: [{ name: "y", type: "float32", dims: ["T", rows] }],
  });
  const x = noise(count * columns);
  const { y } = await session.run({ x: floats(x, [count, columns]) });
  await session.release();
  return largestDifference(y!.data as Float32Array, product(x, values, bias, count));
}

async function embed(stored: StoredBlocks, ids: readonly number[]): Promise<Float32Array> {
  const inputs = ["quants/rows", "ids", "scales"];
  if (stored.zeroPoints) inputs.push("zeros");
  const session = await openSmallGraph({
    nodes: [
      node("GatherBlockQuantized", inputs, {
        bits: { int: stored.bits },
        block_size: { int: stored.block },
        gather_axis: { int: 0 },
        quantize_axis: { int: 1 },
      }),
    ],
    initialisers: initialisers(stored).filter(({ name }) => name !== "quants"),
    inputs: [{ name: "ids", type: "int64", dims: ["T"] }],
    outputs: [{ name: "y", type: "float32", dims: ["T", columns] }],
  });
  const { y } = await session.run({ ids: integers(ids) });
  await session.release();
  return y!.data as Float32Array;
}

function sameCodes(type: BlockType, bytes: Uint8Array, bits: 4 | 8, centre: number): StoredBlocks {
  const { codes, scales } = readBlocks(type, bytes, rows * columns);
  const shift = 2 ** (bits - 1) - centre;
  return { codes: codes.map((code) => code + shift), scales, bits, block: type === "Q6_K" ? 16 : 32 };
}

const cases: readonly (readonly [string, () => { stored: StoredBlocks; values: Float32Array }])[] = [
  ...(
    [
      ["Q8_0", 8, 128],
      ["Q5_0", 8, 16],
      ["Q6_K", 8, 32],
      ["Q4_0", 4, 8],
    ] as const
  ).map(([type, bits, centre]) => {
    const make = () => {
      const bytes = randomBlocks(type);
      return {
        stored: sameCodes(type, bytes, bits, centre),
        values: dequantise(type, bytes, rows * columns),
      };
    };
    return [`a ${type} tensor in ${bits} bits`, make] as const;
  }),
  ["values in 8 bits with zero points", () => requantised(affine8, 8)],
  ["values in 4 bits with zero points", () => requantised(searched4, 4)],
];

function requantised(quantise: (values: Float32Array) => Requantised, bits: 4 | 8) {
  const { codes, scales, zeroPoints } = quantise(noise(rows * columns).map((x) => x + 0.3));
  const values = Float32Array.from(codes, (code, i) => scales[i >> 5]! * (code - zeroPoints![i >> 5]!));
  return { stored: { codes, scales, zeroPoints: zeroPoints!, bits, block: 32 }, values };
}

describe("ONNX Runtime's operators", () => {
  for (const [what, make] of cases) {
    it(`MatMulNBits with bias equals ${what}, times the activations`, async () => {
      const { stored, values } = make();
      for (const count of [1, 5]) expect(await linear(stored, values, 1, count)).toBeLessThan(1e-3);
    });

    it(`MatMulNBits at accuracy 4 stays near ${what}, times the activations`, async () => {
      const { stored, values } = make();
      // Activations in [-1, 1) get 8 bits per block: each errs by up to half of 1/127, 0.29 of it on average.
      const size = Math.sqrt(values.reduce((sum, w) => sum + w * w, 0) / rows);
      for (const count of [1, 5])
        expect(await linear(stored, values, 4, count)).toBeLessThan((7 * 0.29 * size) / 127);
    });

    it(`GatherBlockQuantized returns rows of ${what}, bit for bit`, async () => {
      const { stored, values } = make();
      const ids = [0, rows - 1, 3, 3];
      const expected = ids.flatMap((row) => [...values.subarray(row * columns, (row + 1) * columns)]);
      expect([...(await embed(stored, ids))]).toEqual(expected);
    });
  }

  it("MatMulNBits accepts zero rows", async () => {
    const { stored, values } = cases[1]![1]();
    expect(await linear(stored, values, 4, 0)).toBe(0);
  });

  it("SkipSimplifiedLayerNormalization takes matrices and gives the sum as its fourth output", async () => {
    const [count, width, epsilon] = [3, 64, 1e-6];
    const [a, b, gain] = [noise(count * width), noise(count * width), noise(width)];
    const session = await openSmallGraph({
      nodes: [
        node("SkipSimplifiedLayerNormalization", ["a", "b", "gain"], { epsilon: { float: epsilon } }, [
          "y",
          "",
          "",
          "sum",
        ]),
      ],
      initialisers: [{ name: "gain", dims: [width], values: gain }],
      inputs: ["a", "b"].map((name) => ({ name, type: "float32", dims: ["T", width] }) as const),
      outputs: ["y", "sum"].map((name) => ({ name, type: "float32", dims: ["T", width] }) as const),
    });
    const result = await session.run({ a: floats(a, [count, width]), b: floats(b, [count, width]) });
    await session.release();
    const sum = Array.from(a, (value, i) => value + b[i]!);
    const normed = sum.map((value, i) => {
      const row = sum.slice(i - (i % width), i - (i % width) + width);
      const square = row.reduce((total, x) => total + x * x, 0) / width;
      return (value / Math.sqrt(square + epsilon)) * gain[i % width]!;
    });
    expect(largestDifference(result.sum!.data as Float32Array, sum)).toBeLessThan(1e-6);
    expect(largestDifference(result.y!.data as Float32Array, normed)).toBeLessThan(1e-5);
  });

  it("QuickGelu with alpha 1 is SiLU", async () => {
    const x = Float32Array.of(-20, -1, -0.1, 0, 0.5, 3, 20);
    const session = await openSmallGraph({
      nodes: [node("QuickGelu", ["x"], { alpha: { float: 1 } })],
      initialisers: [],
      inputs: [{ name: "x", type: "float32", dims: ["T", 7] }],
      outputs: [{ name: "y", type: "float32", dims: ["T", 7] }],
    });
    const { y } = await session.run({ x: floats(x, [1, 7]) });
    await session.release();
    const silu = Array.from(x, (value) => value / (1 + Math.exp(-value)));
    expect(largestDifference(y!.data as Float32Array, silu)).toBeLessThan(1e-5);
  });
});
