import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { blockTypes, readBlocks } from "../../models/quantisation/block-types.ts";
import { dequantise } from "../../models/quantisation/dequantise.ts";
import { bf16Bits, bf16Value, f16Bits, f16Values } from "../../models/quantisation/half.ts";
import { isPlain, type TensorType, tensorLayouts } from "../../models/readers/ggml.ts";

interface Fixture {
  readonly cases: readonly { type: TensorType; values: number; bytes: string; f32: string }[];
}
const fixture = JSON.parse(
  readFileSync(new URL("fixtures/dequant.json", import.meta.url), "utf8"),
) as Fixture;

describe("dequantise", () => {
  it("has a fixture of every type that is read", () => {
    expect(fixture.cases.map(({ type }) => type).sort()).toEqual(Object.keys(tensorLayouts).sort());
  });

  for (const { type, values, bytes, f32 } of fixture.cases) {
    it(`gives the values of the gguf package for random ${type} blocks, bit for bit`, () => {
      const actual = dequantise(type, Buffer.from(bytes, "base64"), values);
      const expected = Buffer.from(f32, "base64");
      expect(actual.length * 4).toBe(expected.length);
      for (let i = 0; i < values; i++) expect([i, actual[i]]).toEqual([i, expected.readFloatLE(4 * i)]);
    });

    if (isPlain(type) || blockTypes[type].zeroPoint === undefined) continue;
    it(`reads ${type} codes that fit into 8 bits around 128`, () => {
      const { codes } = readBlocks(type, Buffer.from(bytes, "base64"), values);
      const shift = 128 - blockTypes[type].zeroPoint!;
      for (const code of codes) expect(code + shift).toBeLessThan(256);
    });
  }
});

describe("half-precision numbers", () => {
  it("survive f16 → f32 → f16 for every bit pattern that is a number", () => {
    for (let bits = 0; bits < 65536; bits++) {
      const value = f16Values[bits]!;
      if (!Number.isNaN(value) && f16Bits(value) !== bits)
        expect([bits, f16Bits(value)]).toEqual([bits, bits]);
    }
  });

  it("round to the nearest f16, ties to even", () => {
    expect(f16Values[f16Bits(1 + 2 ** -11)]).toBe(1);
    expect(f16Values[f16Bits(1 + 3 * 2 ** -11)]).toBe(1 + 2 ** -9);
    expect(f16Values[f16Bits(65519)]).toBe(65504);
    expect(f16Values[f16Bits(65520)]).toBe(Number.POSITIVE_INFINITY);
    expect(f16Values[f16Bits(2 ** -25)]).toBe(0);
    expect(f16Values[f16Bits(-1.5 * 2 ** -24)]).toBe(-(2 ** -23));
  });

  it("round to the nearest bf16, ties to even", () => {
    expect(bf16Value(bf16Bits(1 + 2 ** -8))).toBe(1);
    expect(bf16Value(bf16Bits(1 + 3 * 2 ** -8))).toBe(1 + 2 ** -6);
    expect(bf16Value(bf16Bits(-3.140625))).toBe(-3.140625);
  });
});
