// Two engines on the same tokens, place by place: ratios of means, and whether the same places diverge. Pure.
import type { Measured } from "./measure.ts";
import { poolOf, short, type TurnScore } from "./score.ts";
import { mean } from "./statistics.ts";

/** One arm in one turn, over the conversations that both engines have. */
export interface SameTokens {
  readonly arm: string;
  readonly convs: number;
  readonly here: number;
  readonly reference: number;
  readonly openHere: number;
  readonly openReference: number;
  /** Of the means of single conversations, ours over theirs, smallest and largest. */
  readonly ratios: readonly [number, number];
  /** Of the divergences, place by place (Pearson); NaN where one of them does not vary. */
  readonly correlation: number;
  /** Places at which both find that arm and oracle have the same likeliest token, or both that they have not. */
  readonly alike: number;
}

/** In the order of `here`; of arms that both have on the same conversation. `none` is no arm: see `oracles`. */
export function sameTokens(
  here: readonly Measured[],
  reference: readonly Measured[],
  turn: string,
): readonly SameTokens[] {
  const names = new Set(here.map(({ arm }) => arm).filter((arm) => arm !== "none"));
  return [...names].flatMap((arm) => {
    const pairs = here.flatMap((own): (readonly [TurnScore, TurnScore])[] => {
      const other = reference.find((one) => one.arm === arm && one.scene === own.scene);
      return own.arm === arm && other ? [[own.turns[turn]!, other.turns[turn]!]] : [];
    });
    return pairs.length === 0 ? [] : [rowOf(arm, pairs)];
  });
}

function rowOf(arm: string, pairs: readonly (readonly [TurnScore, TurnScore])[]): SameTokens {
  const [own, other] = [pairs.map(([one]) => one), pairs.map(([, one]) => one)];
  const [here, reference] = [poolOf(own), poolOf(other)];
  const ratios = pairs.map(([a, b]) => mean(a.divergences) / mean(b.divergences));
  const agreed = (some: readonly TurnScore[]) => some.flatMap((score) => score.agreed);
  const agreedReference = agreed(other);
  return {
    arm,
    convs: pairs.length,
    here: here.kl,
    reference: reference.kl,
    openHere: here.openKl,
    openReference: reference.openKl,
    ratios: [Math.min(...ratios), Math.max(...ratios)],
    correlation: correlation(
      own.flatMap(({ divergences }) => divergences),
      other.flatMap(({ divergences }) => divergences),
    ),
    alike: mean(agreed(own).map((one, index) => Number(one === agreedReference[index]))),
  };
}

/** Pearson's. */
export function correlation(a: readonly number[], b: readonly number[]): number {
  const [meanA, meanB] = [mean(a), mean(b)];
  const product = mean(a.map((value, index) => (value - meanA) * (b[index]! - meanB)));
  const spread = (some: readonly number[], middle: number) =>
    mean(some.map((value) => (value - middle) ** 2));
  return product / Math.sqrt(spread(a, meanA) * spread(b, meanB));
}

type Row = Readonly<Record<string, string | number>>;

export function sameTokensRows(rows: readonly SameTokens[]): readonly Row[] {
  return rows.map((row) => ({
    arm: row.arm,
    convs: row.convs,
    "KL here": short(row.here),
    "KL PyTorch": short(row.reference),
    ratio: ratioOf(row.here, row.reference),
    "KL open here": short(row.openHere),
    "open PyTorch": short(row.openReference),
    "open: ratio": ratioOf(row.openHere, row.openReference),
    "conv ratios": isNothing(row.reference) ? "-" : row.ratios.map((ratio) => ratio.toFixed(4)).join(" – "),
    "correlation of tokens": isNothing(row.reference) ? "-" : row.correlation.toFixed(4),
    "top-1 alike": `${(100 * row.alike).toFixed(1)} %`,
  }));
}

function ratioOf(here: number, reference: number): string {
  return isNothing(reference) ? "-" : (here / reference).toFixed(4);
}

/** What float32 leaves where two prefills are the same: nothing to divide by. */
function isNothing(kl: number): boolean {
  return Math.abs(kl) < 1e-7;
}

/** What both oracles say: of `reference`, the lines of `none` carry KL(their oracle ‖ ours). */
export function oracles(reference: readonly Measured[]): readonly Row[] {
  const lines = reference.filter(({ arm }) => arm === "none");
  return Object.keys(lines[0]?.turns ?? {}).map((turn) => {
    const scores = lines.map(({ turns }) => turns[turn]!);
    const { kl, least, most, openKl, tokens } = poolOf(scores);
    const agreed = scores.flatMap((score) => score.agreed);
    return {
      turn,
      convs: scores.length,
      tokens,
      "KL(PyTorch ‖ here)": short(kl),
      open: short(openKl),
      "conv means": `${short(least)} – ${short(most)}`,
      "same likeliest": `${(100 * mean(agreed.map(Number))).toFixed(1)} %`,
    };
  });
}
