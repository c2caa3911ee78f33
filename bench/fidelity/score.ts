// What one arm is worth against the oracle: scores of one turn, pooled over conversations into the columns of the
// table. Pure.
import { quantile } from "../support/samples.ts";
import { divergence, firstDivergence, mean, type NeedleScore, type Seen } from "./statistics.ts";

/** What one place met, with the whole distribution. */
export interface Row extends Seen {
  /** Natural logarithms, one per token of the vocabulary. */
  readonly logprobs: Float32Array;
}

/** What is kept of an arm's row: a distribution is as large as a picture. */
export interface Scored extends Seen {
  /** KL(oracle ‖ arm) in nats. */
  readonly divergence: number;
}

export function scored(oracle: Row, { likeliest, nextLogprob, logprobs }: Row): Scored {
  return { likeliest, nextLogprob, divergence: divergence(oracle.logprobs, logprobs) };
}

/** Place by place along one text. */
export interface TurnScore {
  readonly divergences: readonly number[];
  /** The oracle's likeliest token has less than 0.9. */
  readonly open: readonly boolean[];
  readonly agreed: readonly boolean[];
  readonly logprobs: readonly number[];
  readonly firstDivergence: number;
}

/** `likeliest`: what the arm's likeliest tokens are held against, where that is not what this oracle says. */
export function scoreTurn(
  oracle: readonly Row[],
  arm: readonly Scored[],
  text: Int32Array,
  likeliest: readonly number[] = oracle.map((row) => row.likeliest),
): TurnScore {
  return {
    divergences: arm.map((one) => one.divergence),
    open: oracle.map(isOpen),
    agreed: likeliest.map((id, index) => id === arm[index]!.likeliest),
    logprobs: arm.map(({ nextLogprob }) => nextLogprob),
    firstDivergence: firstDivergence(text, arm),
  };
}

function isOpen({ logprobs, likeliest }: Row): boolean {
  return Math.exp(logprobs[likeliest]!) < 0.9;
}

export interface Pool {
  readonly tokens: number;
  readonly kl: number;
  /** Least and largest mean of a conversation. */
  readonly least: number;
  readonly most: number;
  /** Where the oracle is not sure, and how many places those are. */
  readonly openKl: number;
  readonly openTokens: number;
}

/** All tokens of all conversations together, and the spread of the conversations' means. */
export function poolOf(scores: readonly TurnScore[]): Pool {
  const all = scores.flatMap(({ divergences }) => divergences);
  const open = scores.flatMap((score) => score.divergences.filter((_, index) => score.open[index]));
  const means = scores.map(({ divergences }) => mean(divergences));
  return {
    tokens: all.length,
    kl: mean(all),
    least: Math.min(...means),
    most: Math.max(...means),
    openKl: mean(open),
    openTokens: open.length,
  };
}

/** One row of a turn's table. */
export function pooled(scores: readonly TurnScore[], oracle: readonly TurnScore[]) {
  const all = scores.flatMap(({ divergences }) => divergences);
  const { tokens, kl, least, most, openKl, openTokens } = poolOf(scores);
  const ppl = (some: readonly TurnScore[]) => Math.exp(-mean(some.flatMap(({ logprobs }) => logprobs)));
  return {
    convs: scores.length,
    tokens,
    KL: short(kl),
    median: short(quantile(all, 0.5)),
    p99: short(quantile(all, 0.99)),
    "KL open": `${short(openKl)} (${openTokens})`,
    "conv means": `${short(least)} – ${short(most)}`,
    "top-1": `${(100 * mean(scores.flatMap(({ agreed }) => agreed.map(Number)))).toFixed(1)} %`,
    ppl: ppl(scores).toFixed(4),
    "ppl vs none": `${(100 * (ppl(scores) / ppl(oracle) - 1)).toFixed(2)} %`,
    "first difference": scores.map(lengthUntil).join(", "),
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
