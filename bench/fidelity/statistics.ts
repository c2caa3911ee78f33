// The numbers of the fidelity benchmark, in float64: divergence of two distributions over the whole vocabulary,
// the first difference of two greedy runs, needles. Pure; it knows neither model nor cache.

/** What one place of a text met. */
export interface Seen {
  /** The token with the largest probability. */
  readonly likeliest: number;
  /** Natural logarithm, of the token that came next in the text. */
  readonly nextLogprob: number;
}

/**
 * KL(p ‖ q) in nats, of natural logarithms of probabilities, token by token. Both are divided by their own sums in
 * float64, so that what float32 rounded of a softmax's denominator is no divergence. -Infinity is a probability of
 * 0; the result is Infinity where only q has it.
 */
export function divergence(p: ArrayLike<number>, q: ArrayLike<number>): number {
  let [sum, massP, massQ] = [0, 0, 0];
  for (let id = 0; id < p.length; id++) {
    const share = Math.exp(p[id]!);
    massP += share;
    massQ += Math.exp(q[id]!);
    if (share > 0) sum += share * (p[id]! - q[id]!);
  }
  return sum / massP - Math.log(massP) + Math.log(massQ);
}

export function mean(values: readonly number[]): number {
  return total(values) / values.length;
}

function total(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/**
 * Tokens that a greedy run of q would say as `spoken`, a greedy run of p, did: until the first difference both have
 * the same text in front of them, so the scored text tells it without running q. The whole length where none.
 */
export function firstDivergence(answers: ArrayLike<number>, q: readonly Seen[]): number {
  const index = q.findIndex(({ likeliest }, at) => likeliest !== answers[at]);
  return index < 0 ? q.length : index;
}

/** One question about a fact: what the tokens of the right answer met, and of wrong ones of the same form. */
export interface NeedleSeen {
  readonly right: readonly Seen[];
  readonly rightIds: ArrayLike<number>;
  readonly wrong: readonly (readonly Seen[])[];
}

export interface NeedleScore {
  /** Every token of the right answer is the likeliest. */
  readonly recalled: boolean;
  /** Logprob of the right answer minus the mean of the wrong ones; about 0: it is not known. */
  readonly margin: number;
}

export function needleScore({ right, rightIds, wrong }: NeedleSeen): NeedleScore {
  const logprobOf = (seen: readonly Seen[]) => total(seen.map(({ nextLogprob }) => nextLogprob));
  return {
    recalled: firstDivergence(rightIds, right) === right.length,
    margin: logprobOf(right) - mean(wrong.map(logprobOf)),
  };
}
