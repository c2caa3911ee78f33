// Numbers of one row, measured several times: middle, edges, and how many. Never a mean: one disturbance of the
// machine would move it.

/** Of an odd or even count; NaN of none. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Linear between neighbours; `share` 0 is the smallest, 1 the largest. NaN of none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const index = share * (sorted.length - 1);
  const low = sorted[Math.floor(index)] ?? Number.NaN;
  return low + (index % 1) * ((sorted[Math.ceil(index)] ?? low) - low);
}

export interface Spread {
  readonly min: number;
  readonly max: number;
  readonly n: number;
}

export function spread(values: readonly number[]): Spread {
  return { min: Math.min(...values), max: Math.max(...values), n: values.length };
}
