// Cost of further rows of a decode step, relative to the step without them. Weights are read once for all rows, so a
// few rows are nearly free and many are not. Learnt from the steps, since it differs between machines, models and
// kernels. The ratio hardly depends on the depth; the plain step itself is tracked. Reads no clock.

/** Upper ends of ranges of further rows; rows in one range are taken to cost the same each. */
const ranges = [1, 2, 4, 8, 16, 32] as const;
/** Cost of one row before anything is known, as a fraction of a plain step. */
const initialCost = 0.1;
/** Weight of a new observation in the moving average. */
const weight = 0.15;

export class RowCosts {
  #plainMs: number | undefined;
  readonly #perRow: (number | undefined)[] = ranges.map(() => undefined);

  /** A step of decodes alone took `ms`, with `further` draft rows on top. */
  observe(further: number, ms: number): void {
    if (further === 0) {
      this.#plainMs = average(this.#plainMs, ms);
      return;
    }
    if (this.#plainMs === undefined) return;
    const range = rangeOf(further);
    // The upper bound drops steps that other load on the machine delayed.
    const observed = Math.min(Math.max(ms / this.#plainMs - 1, 0) / further, 1);
    this.#perRow[range] = average(this.#perRow[range], observed);
  }

  /** Time of a plain step with `further` more rows, in plain steps: 1 or more. */
  ratio(further: number): number {
    return 1 + further * this.#costIn(rangeOf(Math.max(further, 1)));
  }

  /** A range without observations has the cost of the nearest range that has some. */
  #costIn(range: number): number {
    for (let distance = 0; distance < ranges.length; distance++) {
      const known = this.#perRow[range - distance] ?? this.#perRow[range + distance];
      if (known !== undefined) return known;
    }
    return initialCost;
  }
}

function rangeOf(further: number): number {
  const range = ranges.findIndex((end) => further <= end);
  return range < 0 ? ranges.length - 1 : range;
}

function average(known: number | undefined, observed: number): number {
  return known === undefined ? observed : known + (observed - known) * weight;
}
