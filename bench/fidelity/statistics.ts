// The numbers of the fidelity benchmark, in float64: divergence of two distributions that are known by their
// likeliest tokens, percentiles, the first difference of two greedy runs, needles. Pure; it knows neither model
// nor cache.

/** A next-token distribution as far as it is known: its likeliest tokens, and the token that came. */
export interface Seen {
  /** Likeliest first. */
  readonly ids: Int32Array;
  /** Natural logarithms, of the whole vocabulary's softmax. */
  readonly logprobs: ArrayLike<number>;
  /** Of the token that came next in the scored text. */
  readonly nextLogprob: number;
}

/** What rounding of float32 logprobs may leave of a sum that should be 1. */
const leastRest = 1e-7;

/**
 * KL(p ‖ q) in nats, from below: the least that any two distributions have that agree with what is seen. Tokens that
 * both show count one by one. One that only p shows has at most the least shown probability in q, and all of those
 * together at most what q does not show; within that, q's mass goes to those and to everything else in the way that
 * makes the divergence smallest. With a hundred tokens each, what is missing is the divergence inside the mass that
 * is not shown.
 */
export function divergence(p: Seen, q: Seen): number {
  const theirs = new Map(Array.from(q.ids, (id, rank) => [id, q.logprobs[rank]!]));
  const ceiling = Math.exp(q.logprobs[q.ids.length - 1]!);
  const hidden: number[] = [];
  let sum = 0;
  let [massP, massQ] = [0, 0];
  for (const [rank, id] of p.ids.entries()) {
    const logprob = p.logprobs[rank]!;
    const share = Math.exp(logprob);
    const other = theirs.get(id);
    massP += share;
    if (other === undefined) {
      hidden.push(share);
      continue;
    }
    massQ += Math.exp(other);
    sum += share * (logprob - other);
  }
  const [tail, room] = [rest(massP), rest(massQ)];
  const given = shares(hidden, tail, room, ceiling);
  const most = unseen(q);
  // Without the tail, where it would let those in that q shows and p does not.
  const least = total(given) > most ? shares(hidden, 0, Math.max(most, leastRest), ceiling) : given;
  const found = hidden.reduce((part, share, place) => part + share * Math.log(share / least[place]!), 0);
  return sum + found + tail * Math.log(tail / Math.max(room - total(least), leastRest));
}

function rest(mass: number): number {
  return Math.max(1 - mass, leastRest);
}

/** What q gives to `hidden`, which falls, of `room` for those and `tail`: in proportion, and at most the ceiling each. */
function shares(hidden: readonly number[], tail: number, room: number, ceiling: number): number[] {
  let left = tail + total(hidden);
  return hidden.map((share) => {
    const given = Math.min(ceiling, (room * share) / left);
    room -= given;
    left -= share;
    return given;
  });
}

function total(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** Probability that p shows no token for. */
export function unseen({ logprobs }: Seen): number {
  return Math.max(0, 1 - Array.from(logprobs).reduce((sum, logprob) => sum + Math.exp(logprob), 0));
}

/** Between the two nearest ranks in proportion; `share` 0 … 1. NaN of none. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const place = share * (sorted.length - 1);
  const low = Math.floor(place);
  const [below, above] = [sorted[low] ?? Number.NaN, sorted[Math.ceil(place)] ?? Number.NaN];
  return below + (above - below) * (place - low);
}

export function mean(values: readonly number[]): number {
  return total(values) / values.length;
}

/** Of the text that came: e to the mean negative logprob. */
export function perplexity(seen: readonly Seen[]): number {
  return Math.exp(-mean(seen.map(({ nextLogprob }) => nextLogprob)));
}

/** Share of places where both find the same token likeliest. */
export function agreement(p: readonly Seen[], q: readonly Seen[]): number {
  return mean(p.map((seen, place) => (seen.ids[0] === q[place]!.ids[0] ? 1 : 0)));
}

/**
 * Tokens that a greedy run of q would say as `spoken`, a greedy run of p, did: until the first difference both have
 * the same text in front of them, so the scored text tells it without running q. The whole length where none.
 */
export function firstDivergence(spoken: ArrayLike<number>, q: readonly Seen[]): number {
  const place = q.findIndex(({ ids }, at) => ids[0] !== spoken[at]);
  return place < 0 ? q.length : place;
}

/** One question about a fact: logprobs of the tokens of the right answer and of wrong ones of the same form. */
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
