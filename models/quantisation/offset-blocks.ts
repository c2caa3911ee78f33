// Blocks with a real-valued offset, value = d * q + m (Q4_1, Q5_1, Q4_K, Q5_K), to 8-bit codes with an integer zero point.
// The codes q are few, so the 8 bits have room for an exact multiple: with the scale d / k and the codes k * q + c,
//
//   scale * (k q + c - z) = d q + (c - z) d / k
//
// differences inside a block are exact, and only the offset is rounded, to a multiple of d / k. The best k of 1 … 17
// (1 … 8 for 5-bit codes) is taken; some multiple is always within 1/18 of a step of m (Dirichlet's approximation
// theorem). Where no k fits into a byte, or rounding each value to 1/255 of the range errs less, affine8 is used.
import type { Blocks } from "./block-types.ts";
import { affine8, type Requantised, requantisedBlock } from "./requantise.ts";

/** `largest`: the largest code q of the type. */
export function fitOffsets({ codes, scales, offsets }: Blocks, largest: 15 | 31): Requantised {
  const fitted = new Uint8Array(codes.length);
  const steps = new Float32Array(scales.length);
  const zeroPoints = new Uint8Array(scales.length);
  let worst = 0;
  for (let b = 0, at = 0; b < scales.length; b++, at += requantisedBlock) {
    const fit = fitBlock(scales[b]!, offsets[b]!, largest);
    if (fit) {
      for (let i = at; i < at + requantisedBlock; i++) fitted[i] = fit.factor * codes[i]! + fit.shift;
      steps[b] = fit.step;
      zeroPoints[b] = fit.zeroPoint;
      worst = Math.max(worst, fit.errorSteps);
    } else {
      const plain = affine8(valuesOf(codes.subarray(at, at + requantisedBlock), scales[b]!, offsets[b]!));
      fitted.set(plain.codes, at);
      steps[b] = plain.scales[0]!;
      zeroPoints[b] = plain.zeroPoints![0]!;
      worst = Math.max(worst, plain.maxErrorSteps);
    }
  }
  return { codes: fitted, scales: steps, zeroPoints, maxErrorSteps: worst };
}

interface Fit {
  /** k and c above. */
  readonly factor: number;
  readonly shift: number;
  readonly step: number;
  readonly zeroPoint: number;
  readonly errorSteps: number;
}

/** Undefined when plain rounding errs less. */
function fitBlock(scale: number, offset: number, largest: number): Fit | undefined {
  // All values equal the offset: one step from the zero point.
  if (scale === 0) return { factor: 0, shift: 1, step: offset, zeroPoint: 0, errorSteps: 0 };
  const ratio = offset / scale;
  const span = Math.max(0, ratio + largest) - Math.min(0, ratio);
  // In units of the file's step d: half a step of affine8.
  let bestError = span / 255 / 2;
  let best: Fit | undefined;
  for (let factor = 1; factor * largest <= 255; factor++) {
    const multiple = Math.round(ratio * factor);
    if (multiple < -255 || multiple + factor * largest > 255) continue;
    const error = Math.abs(ratio - multiple / factor);
    if (error >= bestError && !(error === 0 && best === undefined)) continue;
    bestError = error;
    best = {
      factor,
      shift: Math.max(0, multiple),
      step: scale / factor,
      zeroPoint: Math.max(0, -multiple),
      errorSteps: error * factor,
    };
  }
  return best;
}

function valuesOf(codes: Uint8Array, scale: number, offset: number): Float32Array {
  return Float32Array.from(codes, (code) => Math.fround(scale * code) + offset);
}
