// What further rows of a decode step cost, against the step without them: weights are read once for all rows, so few
// are nearly free and many are not. Learnt from the steps themselves, since it differs between machines, models and
// kernels; the ratio hardly moves with the depth, so the plain step is followed by itself. Reads no clock.

/** Upper ends of ranges of further rows that are taken to cost the same each. */
const ranges = [1, 2, 4, 8, 16, 32] as const;
/** Of one row, before anything is known: part of a plain step. */
const firstGuess = 0.1;
const weight = 0.15;

export class RowCosts {
  #plainMs: number | undefined;
  readonly #perRow: (number | undefined)[] = ranges.map(() => undefined);

  /** A step of decodes alone took `ms`, with `further` rows of proposals beside those that it had anyway. */
  observe(further: number, ms: number): void {
    if (further === 0) {
      this.#plainMs = blend(this.#plainMs, ms);
      return;
    }
    if (this.#plainMs === undefined) return;
    const place = rangeOf(further);
    // A step that something else on the machine has held up says little about rows.
    const seen = Math.min(Math.max(ms / this.#plainMs - 1, 0) / further, 1);
    this.#perRow[place] = blend(this.#perRow[place], seen);
  }

  /** Time of a plain step with `further` more rows, in plain steps: 1 or more. */
  ratio(further: number): number {
    return 1 + further * this.#rowIn(rangeOf(Math.max(further, 1)));
  }

  /** Of a range that was never seen: as the nearest that was. */
  #rowIn(place: number): number {
    for (let away = 0; away < ranges.length; away++) {
      const known = this.#perRow[place - away] ?? this.#perRow[place + away];
      if (known !== undefined) return known;
    }
    return firstGuess;
  }
}

function rangeOf(further: number): number {
  const place = ranges.findIndex((end) => further <= end);
  return place < 0 ? ranges.length - 1 : place;
}

function blend(known: number | undefined, seen: number): number {
  return known === undefined ? seen : known + (seen - known) * weight;
}
