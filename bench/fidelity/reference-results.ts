// The measurement that this benchmark has to agree with: the same kind of conversation, computed in PyTorch in
// float32 (six conversations of 6,200 to 8,100 tokens for the 0.5B model, four of 5,400 to 6,600 for the 1.5B model).
// KL to a cold prefill, in nats. And the comparison with it, which is pure.
import type { Pool } from "./score.ts";

/** `open`: mean where the oracle's likeliest token has less than 0.9. `least`, `most`: means of one conversation. */
interface Reference {
  readonly kl: number;
  readonly open: number;
  readonly least: number;
  readonly most: number;
}

interface ReferenceTurn {
  readonly arms: Readonly<Record<string, Reference>>;
  /** Scored tokens, and how many of them are open. */
  readonly tokens: number;
  readonly openTokens: number;
}

const reference = (kl: number, open: number, least: number, most: number): Reference => ({
  kl,
  open,
  least,
  most,
});

const small: Readonly<Record<string, ReferenceTurn>> = {
  report: {
    tokens: 633,
    openTokens: 157,
    arms: {
      suffix: reference(0.017, 0.0646, 0.00297, 0.03133),
      "suffix repair=16": reference(0.01486, 0.05634, 0.00168, 0.02655),
      "suffix repair=64": reference(0.009, 0.03413, 0.00115, 0.01928),
      "suffix repair=256": reference(0.0075, 0.02846, 0.00077, 0.01865),
      "suffix repair=0.25": reference(0.00674, 0.02554, 0.00046, 0.01661),
      "suffix repair=0.5": reference(0.00258, 0.00927, 0.00015, 0.00762),
      // Five of the six conversations; suffix was 0.01587 in those.
      "suffix repair=first-assistant": reference(0.008, 0.04003, 0.00084, 0.0189),
      "suffix repair=assistant": reference(0.00179, 0.00701, 0.00018, 0.00634),
      dropped: reference(0.35122, 0.56634, 0.00832, 1.51818),
      uncompacted: reference(0.4267, 0.37374, 0.048, 1.15651),
    },
  },
  step: {
    tokens: 199,
    openTokens: 44,
    arms: {
      suffix: reference(0.09334, 0.34712, 0.00929, 0.15168),
      "suffix repair=64": reference(0.08416, 0.30884, 0.00631, 0.14348),
      "suffix repair=256": reference(0.08558, 0.31571, 0.00588, 0.14832),
      "suffix repair=assistant": reference(0.00684, 0.02445, 0.00173, 0.01669),
      uncompacted: reference(0.09806, 0.36254, 0.03277, 0.38098),
    },
  },
};

const large: Readonly<Record<string, ReferenceTurn>> = {
  report: {
    tokens: 512,
    openTokens: 185,
    arms: {
      suffix: reference(0.05786, 0.14659, 0.00312, 0.11996),
      "suffix repair=64": reference(0.03032, 0.07701, 0.00193, 0.08963),
      "suffix repair=256": reference(0.02852, 0.07272, 0.00173, 0.08379),
      "suffix repair=first-assistant": reference(0.02885, 0.07323, 0.00175, 0.08521),
      "suffix repair=assistant": reference(0.00654, 0.01745, 0.00045, 0.02215),
      "suffix repair=assistant+256": reference(0.00609, 0.01636, 0.00036, 0.02069),
      dropped: reference(0.57067, 0.94549, 0.0267, 1.49478),
      uncompacted: reference(0.22789, 0.25364, 0.11803, 0.53157),
    },
  },
  step: {
    tokens: 146,
    openTokens: 63,
    arms: {
      suffix: reference(0.18045, 0.30963, 0.08562, 0.31912),
      "suffix repair=64": reference(0.15574, 0.25896, 0.06247, 0.30128),
      "suffix repair=256": reference(0.15603, 0.25982, 0.0609, 0.30123),
      "suffix repair=first-assistant": reference(0.15519, 0.25848, 0.06186, 0.29964),
      "suffix repair=assistant": reference(0.00978, 0.02191, 0.00467, 0.01665),
      "suffix repair=assistant+256": reference(0.00685, 0.0153, 0.00359, 0.01176),
      dropped: reference(2.6621, 2.58454, 2.05627, 2.99288),
      uncompacted: reference(0.15589, 0.25972, 0.09816, 0.22763),
    },
  },
  quote: {
    tokens: 91,
    openTokens: 37,
    arms: {
      suffix: reference(0.06011, 0.14323, 0.00837, 0.10072),
      "suffix repair=64": reference(0.05164, 0.1224, 0.00571, 0.0956),
      "suffix repair=256": reference(0.01899, 0.0343, 0.005, 0.0396),
      "suffix repair=first-assistant": reference(0.04968, 0.11777, 0.00595, 0.09333),
      "suffix repair=assistant": reference(0.03771, 0.08901, 0.00587, 0.071),
      "suffix repair=assistant+256": reference(0.01124, 0.01655, 0.00522, 0.03567),
      dropped: reference(1.23405, 0.83754, 0.36005, 3.6194),
      uncompacted: reference(0.04124, 0.09827, 0.00709, 0.13492),
    },
  },
  ask: {
    tokens: 177,
    openTokens: 70,
    arms: {
      suffix: reference(0.03464, 0.08074, 0.01446, 0.04661),
      "suffix repair=64": reference(0.02732, 0.06195, 0.0136, 0.03487),
      "suffix repair=256": reference(0.02645, 0.05987, 0.01282, 0.03477),
      "suffix repair=first-assistant": reference(0.02704, 0.06121, 0.0136, 0.03417),
      "suffix repair=assistant": reference(0.0099, 0.02176, 0.00129, 0.01465),
      "suffix repair=assistant+256": reference(0.00933, 0.02029, 0.00112, 0.01358),
      dropped: reference(1.04888, 1.02519, 0.79677, 2.08435),
      uncompacted: reference(0.01869, 0.03761, 0.00721, 0.02752),
    },
  },
};

/** Undefined where that model or turn has no reference. */
export function referenceTurn(label: string, turn: string): ReferenceTurn | undefined {
  if (label.startsWith("qwen2.5-coder-0.5b")) return small[turn];
  return label.startsWith("qwen2.5-coder-1.5b") ? large[turn] : undefined;
}

export interface Comparison {
  readonly rows: readonly {
    readonly arm: string;
    readonly here: Pool;
    readonly reference: Reference;
    /** Of the means. */
    readonly ratio: number;
    /** Of the means where the oracle is not sure. */
    readonly openRatio: number;
  }[];
  /** Pairs of arms that are in the same order in both. */
  readonly pairsAlike: number;
  readonly pairs: number;
  /** Means within a factor of two. */
  readonly near: number;
}

/** Over the arms that both have, in rising order of the reference. */
export function compare(here: Readonly<Record<string, Pool>>, arms: ReferenceTurn["arms"]): Comparison {
  const rows = Object.entries(arms)
    .filter(([arm]) => here[arm] !== undefined)
    .toSorted(([, a], [, b]) => a.kl - b.kl)
    .map(([arm, own]) => {
      const pool = here[arm]!;
      return { arm, here: pool, reference: own, ratio: pool.kl / own.kl, openRatio: pool.openKl / own.open };
    });
  const pairs = rows.flatMap((low, index) => rows.slice(index + 1).map((high) => [low, high] as const));
  return {
    rows,
    pairs: pairs.length,
    pairsAlike: pairs.filter(([low, high]) => low.here.kl <= high.here.kl).length,
    near: rows.filter(({ ratio }) => ratio >= 0.5 && ratio <= 2).length,
  };
}
