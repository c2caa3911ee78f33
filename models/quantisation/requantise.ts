// f32 values to blocks of 32 unsigned codes with an f32 scale and an integer zero point: value = scale * (code - zeroPoint).
// Three ways to choose scale and zero point; each reports the largest error in steps (one step = the block's scale).
// Codes are one per byte here; weights.ts packs nibbles.
import { f16Bits, f16Values } from "./half.ts";

/** Values of a block. */
export const requantisedBlock = 32 as const;

export interface Requantised {
  readonly codes: Uint8Array;
  readonly scales: Float32Array;
  /** One per block; absent where all are 2^(bits - 1). */
  readonly zeroPoints?: Uint8Array;
  readonly maxErrorSteps: number;
}

/** 8 bits, zero point 128: codes 1 … 255 (also 0 where an f16 scale was rounded down). */
export function symmetric8(values: Float32Array, scaleType: "f32" | "f16" = "f32"): Requantised {
  const blocks = emptyBlocks(values.length);
  for (let b = 0, at = 0; at < values.length; b++, at += requantisedBlock) {
    const { low, high } = range(values, at);
    const largest = Math.max(-low, high);
    const scale = scaleType === "f16" ? halfScale(largest) : Math.fround(largest / 127);
    blocks.scales[b] = scale;
    blocks.error = Math.max(blocks.error, encode(values, at, blocks.codes, scale, 128, 255));
  }
  return { codes: blocks.codes, scales: blocks.scales, maxErrorSteps: blocks.error };
}

/** 8 bits with a zero point: the block's range, including 0, in 255 steps; errs by at most half a step. */
export function affine8(values: Float32Array): Requantised {
  const blocks = emptyBlocks(values.length);
  const zeroPoints = new Uint8Array(blocks.scales.length);
  for (let b = 0, at = 0; at < values.length; b++, at += requantisedBlock) {
    const { low, high } = range(values, at);
    const scale = Math.fround((high - low) / 255);
    const zeroPoint = scale === 0 ? 0 : Math.round(-low / scale);
    blocks.scales[b] = scale;
    zeroPoints[b] = Math.min(255, zeroPoint);
    blocks.error = Math.max(blocks.error, encode(values, at, blocks.codes, scale, zeroPoints[b]!, 255));
  }
  return { codes: blocks.codes, scales: blocks.scales, zeroPoints, maxErrorSteps: blocks.error };
}

/** The f16 nearest to largest / 127, or the next one up where 127 steps would end more than half a step too low. */
function halfScale(largest: number): number {
  const bits = f16Bits(largest / 127);
  return f16Values[largest > f16Values[bits]! * 127.5 ? bits + 1 : bits]!;
}

/**
 * 4 bits with a zero point. A range that clips a few outliers often errs less over the whole block, so several ranges
 * are tried. For the codes of each, the scale of least squared error has a closed form; the best one is used.
 */
export function searched4(values: Float32Array): Requantised {
  const blocks = emptyBlocks(values.length);
  const zeroPoints = new Uint8Array(blocks.scales.length);
  for (let b = 0, at = 0; at < values.length; b++, at += requantisedBlock) {
    const { scale, zeroPoint } = searchBlock(values, at);
    blocks.scales[b] = scale;
    zeroPoints[b] = zeroPoint;
    blocks.error = Math.max(blocks.error, encode(values, at, blocks.codes, scale, zeroPoint, 15));
  }
  return { codes: blocks.codes, scales: blocks.scales, zeroPoints, maxErrorSteps: blocks.error };
}

/** Fractions of the block's range that the search tries. */
const rangeShares = [1, 0.95, 0.9, 0.85, 0.8, 0.7] as const;

function searchBlock(values: Float32Array, at: number): { scale: number; zeroPoint: number } {
  const { low, high } = range(values, at);
  let best = { scale: 0, zeroPoint: 8 };
  let bestError = Number.POSITIVE_INFINITY;
  if (high === low) return best;
  for (const share of rangeShares) {
    const width = ((high - low) * share) / 15;
    const zeroPoint = Math.min(15, Math.max(0, Math.round((-low * share) / width)));
    const scale = bestScale(values, at, width, zeroPoint);
    const error = squaredError(values, at, scale, zeroPoint);
    if (error < bestError) {
      bestError = error;
      best = { scale, zeroPoint };
    }
  }
  return best;
}

/** argmin over s of sum (x - s c)^2 with c the codes that `width` gives: sum(x c) / sum(c c). */
function bestScale(values: Float32Array, at: number, width: number, zeroPoint: number): number {
  let products = 0;
  let squares = 0;
  const inverse = 1 / width;
  for (let i = at; i < at + requantisedBlock; i++) {
    const x = values[i]!;
    const code = Math.min(15, Math.max(0, Math.round(x * inverse) + zeroPoint)) - zeroPoint;
    products += x * code;
    squares += code * code;
  }
  return Math.fround(squares > 0 && products > 0 ? products / squares : width);
}

function squaredError(values: Float32Array, at: number, scale: number, zeroPoint: number): number {
  let sum = 0;
  const inverse = 1 / scale;
  for (let i = at; i < at + requantisedBlock; i++) {
    const x = values[i]!;
    const code = Math.min(15, Math.max(0, Math.round(x * inverse) + zeroPoint)) - zeroPoint;
    const error = x - scale * code;
    sum += error * error;
  }
  return sum;
}

const smallestNormal = 2 ** -126;

/** Writes a block's codes; returns its largest error in steps. */
function encode(
  values: Float32Array,
  at: number,
  codes: Uint8Array,
  scale: number,
  zeroPoint: number,
  maxCode: number,
): number {
  let worst = 0;
  // A subnormal step has too few digits; the block is written as zero.
  const inverse = scale < smallestNormal ? 0 : 1 / scale;
  for (let i = at; i < at + requantisedBlock; i++) {
    const steps = values[i]! * inverse;
    const code = Math.min(maxCode, Math.max(0, Math.round(steps) + zeroPoint));
    codes[i] = code;
    worst = Math.max(worst, Math.abs(steps - (code - zeroPoint)));
  }
  return worst;
}

function emptyBlocks(count: number): { codes: Uint8Array; scales: Float32Array; error: number } {
  return { codes: new Uint8Array(count), scales: new Float32Array(count / requantisedBlock), error: 0 };
}

/** Smallest and largest value of a block, zero among them. */
function range(values: Float32Array, at: number): { low: number; high: number } {
  let low = 0;
  let high = 0;
  for (let i = at; i < at + requantisedBlock; i++) {
    const x = values[i]!;
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return { low, high };
}
