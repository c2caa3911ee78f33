// Scales of a layer's keys, one per rotary pair: int8 pages divide keys by them (native/kv/store.h), so that the few pairs
// that a model's biases make large do not set the step of all others. They are computed from the weights alone, because
// an import has no text; scales measured on text did no better. Scores do not change: queries are multiplied by them.

/** One layer's key projection, dequantised, rows in half layout (d and d + headDim / 2 are a rotary pair). */
export interface KeyWeights {
  /** (kvHeads * headDim, hidden) */
  readonly weight: Float32Array;
  /** (kvHeads * headDim) */
  readonly bias?: Float32Array;
}

/** Standard deviations beyond the bias that a key may reach. Fidelity is equal with 3, 4 and 6, worse with 1 and 2. */
const deviations = 4;

/**
 * (kvHeads, headDim / 2), above 0: the length of the pair's bias plus four standard deviations of its projection.
 * `gain` (hidden) is the weight of the RMS norm before the projection; the norm's output is modelled as independent
 * numbers of standard deviation `gain`. A pair that is always 0 gets 1.
 */
export function keyScales(
  { weight, bias }: KeyWeights,
  gain: Float32Array,
  headDim: number,
): readonly number[] {
  const half = headDim / 2;
  const heads = weight.length / gain.length / headDim;
  return Array.from({ length: heads * half }, (_, pair) => {
    const first = Math.floor(pair / half) * headDim + (pair % half);
    const rows = [first, first + half];
    const centre = Math.hypot(...rows.map((row) => bias?.[row] ?? 0));
    const deviation = Math.sqrt(rows.reduce((sum, row) => sum + variance(weight, gain, row), 0));
    return Math.fround(centre + deviations * deviation) || 1;
  });
}

function variance(weight: Float32Array, gain: Float32Array, row: number): number {
  let sum = 0;
  for (let i = 0, at = row * gain.length; i < gain.length; i++, at++) sum += (weight[at]! * gain[i]!) ** 2;
  return sum;
}
