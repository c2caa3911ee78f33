import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  affine8,
  type Requantised,
  requantisedBlock,
  searched4,
  symmetric8,
} from "../../models/quantisation/requantise.ts";

const blocks = fc
  .array(fc.float({ noNaN: true, noDefaultInfinity: true, min: -100, max: 100 }), {
    minLength: requantisedBlock,
    maxLength: requantisedBlock,
  })
  .map((values) => Float32Array.from(values));

function restore({ codes, scales, zeroPoints }: Requantised, fallback: number): number[] {
  return Array.from(codes, (code, i) => {
    const b = Math.floor(i / requantisedBlock);
    return scales[b]! * (code - (zeroPoints?.[b] ?? fallback));
  });
}

function squaredError(values: Float32Array, restored: readonly number[]): number {
  return restored.reduce((sum, value, i) => sum + (value - values[i]!) ** 2, 0);
}

describe("requantise", () => {
  it("restores 8-bit values within half a step, and reports the error", () => {
    fc.assert(
      fc.property(blocks, (values) => {
        for (const [result, fallback] of [
          [affine8(values), 0],
          [symmetric8(values), 128],
        ] as const) {
          const scale = result.scales[0]!;
          const worst = Math.max(...restore(result, fallback).map((x, i) => Math.abs(x - values[i]!)));
          expect(result.maxErrorSteps).toBeLessThanOrEqual(0.501);
          if (scale > 1e-30) expect(worst).toBeLessThanOrEqual(scale * (result.maxErrorSteps + 1e-3));
        }
      }),
    );
  });

  it("never errs more with the 4-bit search than with the block's whole range in 15 steps", () => {
    fc.assert(
      fc.property(blocks, (values) => {
        const low = Math.min(0, ...values);
        const high = Math.max(0, ...values);
        fc.pre(high - low > 1e-6);
        const scale = (high - low) / 15;
        const zeroPoint = Math.round(-low / scale);
        const plain = Array.from(values, (x) => {
          const code = Math.min(15, Math.max(0, Math.round(x / scale) + zeroPoint));
          return scale * (code - zeroPoint);
        });
        const searched = squaredError(values, restore(searched4(values), 8));
        expect(searched).toBeLessThanOrEqual(squaredError(values, plain) * 1.0001 + 1e-9);
      }),
    );
  });

  it("keeps zeros zero, and blocks of subnormal values finite", () => {
    const tiny = new Float32Array(requantisedBlock).fill(1e-44);
    for (const quantise of [affine8, symmetric8, searched4]) {
      expect(restore(quantise(new Float32Array(requantisedBlock)), 128).every((x) => x === 0)).toBe(true);
      expect(restore(quantise(tiny), 128).every(Number.isFinite)).toBe(true);
    }
  });
});
