// Wraps the runner and counts what steps compute: how many tokens, how many keys each of them
// looks at, how many rows go through the LM head. Counts only; what follows in multiply-adds is a formula over the
// model's shapes. It follows the gaps of every sequence, since a step fills them front to back.
import type { DecoderShapes } from "../../models/families/hyperparameters.ts";
import type { CellSplice, Runner, SequenceId, StepEntry } from "../../src/engine/addon.ts";

/** Of the steps since the last look. */
export interface Work {
  readonly tokens: number;
  /** Query-key pairs of one head in one layer: a token at index i looks at i + 1 keys. */
  readonly pairs: number;
  /** Rows of logits. */
  readonly rows: number;
}

export type Shapes = Pick<
  DecoderShapes,
  "layers" | "hidden" | "ffn" | "heads" | "kvHeads" | "headDim" | "vocab"
>;

interface Range {
  readonly start: number;
  readonly end: number;
}

export class Meter {
  readonly #gaps = new Map<SequenceId, readonly Range[]>();
  #work: Work = nothing;

  /** The runner, watched. One meter watches one runner. */
  wrap(runner: Runner): Runner {
    const watched: Partial<Runner> = {
      release: (id) => {
        runner.release(id);
        this.#gaps.delete(id);
      },
      splice: (id, splices) => {
        runner.splice(id, splices);
        this.#gaps.set(id, afterSplices(this.#gaps.get(id) ?? [], splices));
      },
      step: async (entries) => {
        const result = await runner.step(entries);
        for (const entry of entries) this.#count(entry);
        return result;
      },
    };
    return new Proxy(runner, {
      get(target, key) {
        const own: unknown = Reflect.get(watched, key);
        if (own !== undefined) return own;
        const value: unknown = Reflect.get(target, key);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }

  /** What was computed since the last call. */
  take(): Work {
    const work = this.#work;
    this.#work = nothing;
    return work;
  }

  #count({ sequence, tokens, sample }: StepEntry): void {
    const { filled, rest } = fill(this.#gaps.get(sequence) ?? [], tokens.length);
    this.#gaps.set(sequence, rest);
    this.#work = {
      tokens: this.#work.tokens + tokens.length,
      pairs: this.#work.pairs + filled.reduce((sum, range) => sum + pairsOf(range), 0),
      rows: this.#work.rows + (sample ? 1 : 0),
    };
  }
}

const nothing: Work = { tokens: 0, pairs: 0, rows: 0 };

/** In units of 10^9: of the linear layers with the LM head, and of attention (scores and weighted values). */
export function gigaMultiplyAdds({ tokens, pairs, rows }: Work, shapes: Shapes) {
  const { layers, hidden, ffn, heads, kvHeads, headDim, vocab } = shapes;
  const projections = 2 * hidden * heads * headDim + 2 * hidden * kvHeads * headDim;
  const linear = tokens * layers * (projections + 3 * hidden * ffn) + rows * hidden * vocab;
  const attention = 2 * pairs * layers * heads * headDim;
  return { linear: linear / 1e9, attention: attention / 1e9 };
}

/** Open cells after an edit; splices in old coordinates, ordered and disjoint. */
export function afterSplices(gaps: readonly Range[], splices: readonly CellSplice[]): Range[] {
  const found: Range[] = [];
  let from = 0;
  let shift = 0;
  for (const { start, end, count } of [
    ...splices,
    { start: Number.POSITIVE_INFINITY, end: Number.POSITIVE_INFINITY, count: 0 },
  ]) {
    for (const gap of gaps) {
      const left = Math.max(gap.start, from);
      const right = Math.min(gap.end, start);
      if (left < right) found.push({ start: left + shift, end: right + shift });
    }
    if (count > 0) found.push({ start: start + shift, end: start + shift + count });
    shift += count - (end - start);
    from = end;
  }
  return found;
}

/** The first `count` open cells, and what stays open. */
export function fill(gaps: readonly Range[], count: number): { filled: Range[]; rest: Range[] } {
  const filled: Range[] = [];
  const rest: Range[] = [];
  let left = count;
  for (const { start, end } of gaps) {
    const middle = Math.min(end, start + left);
    if (start < middle) filled.push({ start, end: middle });
    if (middle < end) rest.push({ start: middle, end });
    left -= middle - start;
  }
  return { filled, rest };
}

/** start + 1 + … + end. */
function pairsOf({ start, end }: Range): number {
  return ((end - start) * (start + 1 + end)) / 2;
}
