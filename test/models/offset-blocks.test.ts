import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { fitOffsets } from "../../models/quantisation/offset-blocks.ts";
import { affine8 } from "../../models/quantisation/requantise.ts";

const block = fc.record({
  codes: fc.uint8Array({ minLength: 32, maxLength: 32, max: 15 }),
  scale: fc.float({ min: Math.fround(1e-4), max: 1, noNaN: true }),
  /** Offset in steps of the file; real blocks have -15 … 0. */
  ratio: fc.float({ min: -40, max: 20, noNaN: true }),
});

function restore({ codes, scales, zeroPoints }: ReturnType<typeof fitOffsets>): number[] {
  return Array.from(codes, (code) => scales[0]! * (code - zeroPoints![0]!));
}

function errors(restored: readonly number[], values: ArrayLike<number>): number[] {
  return restored.map((value, i) => Math.abs(value - values[i]!));
}

describe("fitting blocks with an offset into 8-bit codes", () => {
  it("never errs more than rounding to 1/255 of the block's possible range, and reports its error", () => {
    fc.assert(
      fc.property(block, ({ codes, scale, ratio }) => {
        const offset = Math.fround(scale * ratio);
        const values = Float32Array.from(codes, (code) => Math.fround(scale * code) + offset);
        const fit = fitOffsets(
          { codes, scales: Float32Array.of(scale), offsets: Float32Array.of(offset) },
          15,
        );
        const worst = Math.max(...errors(restore(fit), values));
        const span = Math.max(0, offset + 15 * scale) - Math.min(0, offset);
        expect(worst).toBeLessThanOrEqual((span / 255 / 2) * 1.001 + scale * 1e-4);
        expect(worst).toBeLessThanOrEqual(fit.scales[0]! * fit.maxErrorSteps + scale * 1e-4);
      }),
    );
  });

  it("keeps differences inside a block and errs by at most 1/18 of a step for usual offsets", () => {
    fc.assert(
      fc.property(block, ({ codes, scale, ratio }) => {
        fc.pre(ratio >= -15 && ratio <= 0);
        const offset = Math.fround(scale * ratio);
        const fit = fitOffsets(
          { codes, scales: Float32Array.of(scale), offsets: Float32Array.of(offset) },
          15,
        );
        const values = Array.from(codes, (code) => scale * code + offset);
        const differences = restore(fit).map((value, i) => value - values[i]!);
        const [low, high] = [Math.min(...differences), Math.max(...differences)];
        expect(high - low).toBeLessThan(scale * 1e-4);
        expect(Math.max(Math.abs(low), Math.abs(high))).toBeLessThanOrEqual(scale / 18 + scale * 1e-4);
      }),
    );
  });

  it("has less than a third of the squared error of rounding", () => {
    let [fitted, plain] = [0, 0];
    for (let n = 0; n < 200; n++) {
      const codes = Uint8Array.from({ length: 32 }, (_, i) => (i * 7 + n) % 16);
      const offset = Math.fround(-7.5 + Math.sin(n * 1.7) * 2);
      const values = Float32Array.from(codes, (code) => code + offset);
      const fit = fitOffsets({ codes, scales: Float32Array.of(1), offsets: Float32Array.of(offset) }, 15);
      fitted += errors(restore(fit), values).reduce((sum, x) => sum + x * x, 0);
      plain += errors(restore(affine8(values)), values).reduce((sum, x) => sum + x * x, 0);
    }
    expect(fitted).toBeLessThan(plain / 3);
  });

  it("keeps blocks with scale 0 exact, zero blocks among them", () => {
    const codes = new Uint8Array(64).fill(9);
    const fit = fitOffsets({ codes, scales: new Float32Array(2), offsets: Float32Array.of(-0.25, 0) }, 31);
    const restored = Array.from(
      fit.codes,
      (code, i) => fit.scales[i >> 5]! * (code - fit.zeroPoints![i >> 5]!),
    );
    expect(restored).toEqual([...new Array(32).fill(-0.25), ...new Array(32).fill(0)]);
    expect(fit.maxErrorSteps).toBe(0);
  });
});
