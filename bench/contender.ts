// What the `engine` bench measures, ours or another's: one engine on one file of weights that can hold a prompt and
// be asked, as often as one likes, how long it takes to read or write a few tokens behind the start of it. And the
// taking of turns, so that whatever else the machine does in the meantime meets all contenders alike.

export interface Contender {
  /** Such as `pocket` or `llama.cpp fa=on`. */
  readonly name: string;
  /** Type of keys and values, in the contender's own word. */
  readonly kv: string;
  /** Makes the prompt resident, nothing reused. Seconds to its first token. Once, and first. */
  resident(prompt: readonly number[]): Promise<number>;
  /** Seconds to compute `added` and one token behind `context`, a start of the resident prompt. */
  prefill(context: readonly number[], added: readonly number[]): Promise<number>;
  /** Seconds for `count` greedy tokens behind `context`, one step each. */
  decode(context: readonly number[], count: number): Promise<number>;
  close(): Promise<void>;
}

/**
 * One uncounted turn each (unless `warm` is false), then `repetitions` rounds; every second round in reverse order. The results stand in
 * the order of `runs`.
 */
export async function takeTurns(
  runs: readonly (() => Promise<number>)[],
  repetitions: number,
  { warm = true }: { readonly warm?: boolean } = {},
): Promise<number[][]> {
  const results: number[][] = runs.map(() => []);
  if (warm) for (const run of runs) await run();
  for (let round = 0; round < repetitions; round++) {
    const order = runs.map((_, place) => place);
    for (const place of round % 2 === 0 ? order : order.reverse()) results[place]!.push(await runs[place]!());
  }
  return results;
}
