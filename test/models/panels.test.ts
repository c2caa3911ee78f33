// Packed panels: written by models/, read by a reference reader that shares no code, compared with the file's values bit for
// bit.
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type BlockType, blockTypes } from "../../models/quantisation/block-types.ts";
import { dequantise } from "../../models/quantisation/dequantise.ts";
import { f16Bits, f16Values } from "../../models/quantisation/half.ts";
import { fileBlocks, quantiseQ4_1, quantiseQ8_0 } from "../../models/quantisation/panel-source.ts";
import { packPanels, panelBytes, panelFormatOf } from "../../models/quantisation/panels.ts";
import { panelStorage } from "../../models/quantisation/weight-formats.ts";
import { bytesOf, isPlain, type TensorType } from "../../models/readers/ggml.ts";
import { seeded } from "../support/random.ts";
import { readPanels } from "./panel-reader.ts";

const types = Object.keys(blockTypes) as BlockType[];

/** Random codes and sub-scales under finite random scales of both signs. */
function randomTensor(type: BlockType, count: number, seed: number): Uint8Array {
  const random = seeded(seed);
  const bytes = Uint8Array.from({ length: bytesOf(type, count) }, () => random() * 256);
  const { bytes: step, scaleAt, minimumAt = scaleAt } = blockTypes[type];
  for (let at = 0; at < bytes.length; at += step)
    for (const half of new Set([scaleAt, minimumAt])) {
      const bits = f16Bits((random() - 0.5) / 8);
      bytes[at + half] = bits & 255;
      bytes[at + half + 1] = bits >> 8;
    }
  return bytes;
}

/** Equal as numbers, with the first difference in the message. */
function expectEqual(actual: Float32Array, expected: Float32Array): void {
  expect(actual.length).toBe(expected.length);
  const at = actual.findIndex((value, i) => value !== expected[i]);
  expect([at, actual[at]]).toEqual([-1, undefined]);
}

describe("panels", () => {
  for (const type of types) {
    const format = panelFormatOf(type);
    it(`have the values of ${type} blocks bit for bit, for any number of rows`, () => {
      for (const [rows, columns] of [
        [1, 256],
        [16, 512],
        [35, 768],
      ] as const) {
        const bytes = randomTensor(type, rows * columns, rows);
        const packed = packPanels(format, fileBlocks(type, bytes, rows * columns), rows, columns);
        expect(packed.length).toBe(panelBytes(format, rows, columns));
        expectEqual(readPanels(format, packed, rows, columns), dequantise(type, bytes, rows * columns));
      }
    });

    it(`take as many bits as ${type} does in the file`, () => {
      const packed = panelBytes(format, 16, 256);
      // The six-bit scales of a q4_k or q5_k block are bytes here: 4 of 144 or 176 bytes more.
      const extra = type === "Q4_K" || type === "Q5_K" ? 4 * 16 : 0;
      expect(packed).toBe(bytesOf(type, 16 * 256) + extra);
    });
  }

  it("packed in chunks of whole panels equal those packed at once", () => {
    const [rows, columns] = [48, 256];
    const bytes = randomTensor("Q5_K", rows * columns, 5);
    const whole = packPanels("q5_k", fileBlocks("Q5_K", bytes, rows * columns), rows, columns);
    const pieces = [0, 1, 2].map((piece) => {
      const part = bytes.subarray((piece * bytes.length) / 3, ((piece + 1) * bytes.length) / 3);
      return packPanels("q5_k", fileBlocks("Q5_K", part, 16 * columns), 16, columns);
    });
    expect(Buffer.concat(pieces).equals(whole)).toBe(true);
  });

  it("are zero where a row is padding", () => {
    const bytes = randomTensor("Q6_K", 3 * 256, 9);
    const packed = packPanels("q6_k", fileBlocks("Q6_K", bytes, 3 * 256), 3, 256);
    const padding = readPanels("q6_k", packed, 16, 256).subarray(3 * 256);
    expect(padding.every((value) => value === 0)).toBe(true);
  });
});

interface Fixture {
  readonly cases: readonly { type: TensorType; values: number; bytes: string; f32: string }[];
}
const fixture = JSON.parse(
  readFileSync(new URL("fixtures/dequant.json", import.meta.url), "utf8"),
) as Fixture;

describe("exact panels", () => {
  for (const { type, values, bytes, f32 } of fixture.cases.filter(({ type }) => !isPlain(type)))
    it(`give the values of the gguf package for random ${type} blocks`, () => {
      const { format, convert } = panelStorage.exact(type, "linear");
      const source = convert(Buffer.from(bytes, "base64"), values, () => {});
      expect(source.maxErrorSteps).toBe(0);
      const packed = packPanels(format, source, 1, values);
      const expected = Buffer.from(f32, "base64");
      expectEqual(
        readPanels(format, packed, 1, values),
        Float32Array.from({ length: values }, (_, i) => expected.readFloatLE(4 * i)),
      );
    });
});

describe("quantised panels", () => {
  const block = (min: number, max: number) =>
    fc
      .array(
        fc.float({ noNaN: true, noDefaultInfinity: true, min: Math.fround(min), max: Math.fround(max) }),
        {
          minLength: 32,
          maxLength: 32,
        },
      )
      .map((values) => Float32Array.from(values));
  const blocks = fc.oneof(block(-100, 100), block(-1e-3, 1e-3), block(-1e-6, 1e-6), block(0, 3));

  it("of q8_0 are within half a step, and report the error", () => {
    fc.assert(
      fc.property(blocks, (values) => {
        const source = quantiseQ8_0(values);
        const restored = readPanels("q8_0", packPanels("q8_0", source, 1, 32), 1, 32);
        const step = f16Values[source.scales[0]!]!;
        const worst = Math.max(...restored.map((value, i) => Math.abs(value - values[i]!)));
        expect(source.maxErrorSteps).toBeLessThanOrEqual(0.501);
        expect(worst).toBeLessThanOrEqual(step * (source.maxErrorSteps + 1e-3));
        // The step is the block's range in 127, or the smallest 16-bit number.
        const largest = Math.max(...values.map(Math.abs));
        expect(step).toBeLessThanOrEqual(Math.max((largest / 127) * 1.001, largest / 127 + 2 ** -24));
      }),
    );
  });

  it("of q4_1 err less than one step of the block's range in 15 steps", () => {
    fc.assert(
      fc.property(block(-100, 100), (values) => {
        const low = Math.min(0, ...values);
        const high = Math.max(0, ...values);
        fc.pre(high - low > 1e-2);
        const restored = readPanels("q4_1", packPanels("q4_1", quantiseQ4_1(values), 1, 32), 1, 32);
        const squares = restored.reduce((sum, value, i) => sum + (value - values[i]!) ** 2, 0);
        expect(Math.sqrt(squares / 32)).toBeLessThanOrEqual((high - low) / 15);
      }),
    );
  });

  it("under int8 keep the codes of blocks with one scale", () => {
    for (const type of ["Q4_0", "Q5_0", "Q8_0"] as const) {
      const bytes = randomTensor(type, 64, 3);
      const { format, convert } = panelStorage.int8(type, "linear");
      expect(format).toBe("q8_0");
      const packed = packPanels(
        format,
        convert(bytes, 64, () => {}),
        2,
        32,
      );
      expectEqual(readPanels(format, packed, 2, 32), dequantise(type, bytes, 64));
    }
  });
});
