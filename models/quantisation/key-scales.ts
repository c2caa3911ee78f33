// How far the keys of a layer reach, pair by pair: what int8 pages divide them by (native/kv/store.h), so that the few
// rotary pairs that a family's biases make large do not set the step of all others. Of the weights alone, because an
// import has no text; measured reaches of text did no better. It changes no score: queries are multiplied by the same.

/** One layer's key projection as the file has it, rows in half layout. */
export interface KeyWeights {
  /** (kvHeads * headDim, hidden) */
  readonly weight: Float32Array;
  /** (kvHeads * headDim) */
  readonly bias?: Float32Array;
}

/** Deviations beyond the bias that a key is expected to reach. 3, 4 and 6 serve alike, 1 and 2 do not (native/README.md). */
const deviations = 4;

/**
 * (kvHeads, headDim / 2), above 0: the length of the pair's bias and four deviations of what the weights add to it.
 * `gain` (hidden) is the weight of the RMS norm in front, whose output is taken for independent numbers of deviation
 * `gain`. A pair that is always 0 gets 1.
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
