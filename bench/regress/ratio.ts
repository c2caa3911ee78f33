// Two sides measured in turn, round by round: how many times the second is the first, and between which numbers
// that lies for all we know. The interval is a bootstrap over the rounds (Efron 1979): rounds are drawn with
// replacement, both sides of a round together, so that what slowed a whole round slows both.
import { seeded } from "../../test/support/random.ts";
import { median, quantile } from "../support/samples.ts";

export interface Ratio {
  /** Median of the second side over median of the first. */
  readonly ratio: number;
  /** 95 % of the bootstrap lies in [low, high]; with one round both are the ratio. */
  readonly low: number;
  readonly high: number;
  readonly rounds: number;
}

const draws = 2000;

/** One number a round and side; the same rounds on both. */
export function pairedRatio(first: readonly number[], second: readonly number[]): Ratio {
  const rounds = Math.min(first.length, second.length);
  const of = (places: readonly number[]) =>
    median(places.map((index) => second[index]!)) / median(places.map((index) => first[index]!));
  const all = Array.from({ length: rounds }, (_, index) => index);
  const random = seeded(1);
  const drawn = Array.from({ length: draws }, () => of(all.map(() => Math.floor(random() * rounds))));
  return { ratio: of(all), low: quantile(drawn, 0.025), high: quantile(drawn, 0.975), rounds };
}

/** A smallest difference that matters keeps a steady 0.3 % from being called one. */
export const telling = 0.02;
/** Fewer rounds cannot say that a difference is no chance: of four all one way, one in eight is. */
export const enoughRounds = 5;

export type Verdict = "faster" | "slower" | "no difference" | "within the noise" | "too few rounds";

/** `isRate`: more is better, as with tokens a second; else less is, as with milliseconds. */
export function verdictOn({ ratio, low, high, rounds }: Ratio, isRate: boolean): Verdict {
  if (rounds < enoughRounds) return "too few rounds";
  if (low > 1 - telling && high < 1 + telling) return "no difference";
  if ((low <= 1 && high >= 1) || Math.abs(ratio - 1) < telling) return "within the noise";
  return ratio > 1 === isRate ? "faster" : "slower";
}
