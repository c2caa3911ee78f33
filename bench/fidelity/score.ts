// What one arm is worth against the oracle: scores of one turn, pooled over conversations into the columns of the
// table. Pure.
import {
  divergence,
  firstDivergence,
  mean,
  type NeedleScore,
  percentile,
  type Seen,
  unseen,
} from "./statistics.ts";

/** Place by place along one text. */
export interface TurnScore {
  readonly divergences: readonly number[];
  /** The oracle's likeliest token has less than 0.9. */
  readonly open: readonly boolean[];
  readonly agreed: readonly boolean[];
  readonly logprobs: readonly number[];
  /** What neither hundred shows, by the oracle. */
  readonly unseen: readonly number[];
  readonly firstDivergence: number;
}

export function scoreTurn(oracle: readonly Seen[], arm: readonly Seen[], text: Int32Array): TurnScore {
  return {
    divergences: oracle.map((seen, place) => divergence(seen, arm[place]!)),
    open: oracle.map(({ logprobs }) => Math.exp(logprobs[0]!) < 0.9),
    agreed: oracle.map(({ ids }, place) => ids[0] === arm[place]!.ids[0]),
    logprobs: arm.map(({ nextLogprob }) => nextLogprob),
    unseen: oracle.map(unseen),
    firstDivergence: firstDivergence(text, arm),
  };
}

/** One row: all tokens of all conversations together, and the spread of the conversations' means. */
export function pooled(scores: readonly TurnScore[], oracle: readonly TurnScore[]) {
  const all = scores.flatMap(({ divergences }) => divergences);
  const open = scores.flatMap((score) => score.divergences.filter((_, place) => score.open[place]));
  const means = scores.map(({ divergences }) => mean(divergences));
  const ppl = (some: readonly TurnScore[]) => Math.exp(-mean(some.flatMap(({ logprobs }) => logprobs)));
  return {
    convs: scores.length,
    tokens: all.length,
    KL: short(mean(all)),
    median: short(percentile(all, 0.5)),
    p99: short(percentile(all, 0.99)),
    "KL open": `${short(mean(open))} (${open.length})`,
    "conv means": `${short(Math.min(...means))} – ${short(Math.max(...means))}`,
    "top-1": `${(100 * mean(scores.flatMap(({ agreed }) => agreed.map(Number)))).toFixed(1)} %`,
    ppl: ppl(scores).toFixed(4),
    "ppl vs none": `${(100 * (ppl(scores) / ppl(oracle) - 1)).toFixed(2)} %`,
    "first difference": scores.map(lengthUntil).join(", "),
    unseen: short(mean(scores.flatMap((score) => score.unseen))),
  };
}

function lengthUntil({ firstDivergence: first, agreed }: TurnScore): string {
  return first === agreed.length ? `- (${first})` : String(first);
}

export function pooledNeedles(scores: readonly NeedleScore[]) {
  const recalled = scores.filter((score) => score.recalled).length;
  return {
    recalled: `${recalled}/${scores.length}`,
    margin: mean(scores.map(({ margin }) => margin)).toFixed(2),
  };
}

/** Three digits, also of what is next to nothing. */
export function short(value: number): string {
  if (value === 0) return "0";
  return Math.abs(value) < 1e-4 ? value.toExponential(1) : value.toPrecision(3);
}
