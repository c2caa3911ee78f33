// What the `engine` bench measures, ours or another's: one engine on one file of weights that can hold a prompt and
// be asked, as often as one likes, how long it takes to read or write a few tokens behind the start of it. And the
// alternation, so that other load on the machine affects all engines alike.

export interface PeerEngine {
  /** Such as `pocket` or `llama.cpp fa=on`. */
  readonly name: string;
  /** Type of keys and values, as the engine names it. */
  readonly kv: string;
  /** What it computes with, where that is not what the model folder says. */
  readonly weights?: string;
  /** Makes the prompt resident, nothing reused. Seconds to its first token. Once, and first. */
  resident(prompt: readonly number[]): Promise<number>;
  /** Seconds to compute `added` and one token behind `context`, a start of the resident prompt. */
  prefill(context: readonly number[], added: readonly number[]): Promise<number>;
  /** Seconds for `count` greedy tokens behind `context`, one step each. */
  decode(context: readonly number[], count: number): Promise<number>;
  /** Peak resident memory if it is a separate process; NaN if unknown. */
  peakBytes?(): number;
  close(): Promise<void>;
}

/** A turn that takes longer is not had a second time. */
const longestTurn = 20_000;

/**
 * One uncounted turn each (unless `warm` is false), then `repetitions` rounds; every second round in reverse order. The
 * results have the order of `runs`. An engine whose first turn took more than `longest` milliseconds has had its
 * only one, and it counts: a minute needs no warming up.
 */
export async function alternate(
  runs: readonly (() => Promise<number>)[],
  repetitions: number,
  { warm = true, longest = longestTurn }: { readonly warm?: boolean; readonly longest?: number } = {},
): Promise<number[][]> {
  const results: number[][] = runs.map(() => []);
  const again = new Set(runs.keys());
  const rounds = warm ? repetitions + 1 : repetitions;
  for (let round = 0; round < rounds; round++) {
    const counted = warm ? round - 1 : round;
    const order = [...again];
    for (const index of counted % 2 === 1 ? order.toReversed() : order) {
      const start = performance.now();
      const result = await runs[index]!();
      const isLong = round === 0 && performance.now() - start > longest;
      if (isLong) again.delete(index);
      if (isLong || counted >= 0) results[index]!.push(result);
    }
  }
  return results;
}
