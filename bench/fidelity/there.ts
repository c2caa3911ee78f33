// The measurement that this benchmark has to agree with: the same kind of conversation, computed in PyTorch in
// float32 with KL over the whole vocabulary (six conversations of 6,200 to 8,100 tokens for the 0.5B model, four of
// 5,400 to 6,600 for the 1.5B model). Mean KL to a cold prefill, in nats. And the comparison with it, which is pure.

type Means = Readonly<Record<string, number>>;

const small: Readonly<Record<string, Means>> = {
  report: {
    suffix: 0.017,
    "suffix repair=16": 0.01486,
    "suffix repair=64": 0.009,
    "suffix repair=256": 0.0075,
    "suffix repair=0.25": 0.00674,
    "suffix repair=0.5": 0.00258,
    // Five of the six conversations; suffix was 0.01587 in those.
    "suffix repair=first-assistant": 0.008,
    "suffix repair=assistant": 0.00179,
    dropped: 0.35122,
    uncompacted: 0.4267,
  },
  step: {
    suffix: 0.09334,
    "suffix repair=64": 0.08416,
    "suffix repair=256": 0.08558,
    "suffix repair=assistant": 0.00684,
    uncompacted: 0.09806,
  },
};

const large: Readonly<Record<string, Means>> = {
  report: {
    suffix: 0.05786,
    "suffix repair=64": 0.03032,
    "suffix repair=256": 0.02852,
    "suffix repair=first-assistant": 0.02885,
    "suffix repair=assistant": 0.00654,
    "suffix repair=assistant+256": 0.00609,
    dropped: 0.57067,
    uncompacted: 0.22789,
  },
  step: {
    suffix: 0.18045,
    "suffix repair=64": 0.15574,
    "suffix repair=256": 0.15603,
    "suffix repair=first-assistant": 0.15519,
    "suffix repair=assistant": 0.00978,
    "suffix repair=assistant+256": 0.00685,
    dropped: 2.6621,
    uncompacted: 0.15589,
  },
  quote: {
    suffix: 0.06011,
    "suffix repair=64": 0.05164,
    "suffix repair=256": 0.01899,
    "suffix repair=first-assistant": 0.04968,
    "suffix repair=assistant": 0.03771,
    "suffix repair=assistant+256": 0.01124,
    dropped: 1.23405,
    uncompacted: 0.04124,
  },
};

/** Undefined where that model or turn was not measured there. */
export function meansThere(label: string, turn: string): Means | undefined {
  if (label.startsWith("qwen2.5-coder-0.5b")) return small[turn];
  return label.startsWith("qwen2.5-coder-1.5b") ? large[turn] : undefined;
}

export interface Comparison {
  readonly rows: readonly {
    readonly arm: string;
    readonly here: number;
    readonly there: number;
    readonly ratio: number;
    /** As shares of what suffix reuse costs. */
    readonly ofSuffixHere: number;
    readonly ofSuffixThere: number;
  }[];
  /** Pairs of arms that are in the same order in both. */
  readonly pairsAlike: number;
  readonly pairs: number;
}

/** Over the arms that both have, "there" rising. */
export function compare(here: Means, there: Means): Comparison {
  const arms = Object.keys(there).filter((arm) => here[arm] !== undefined);
  const rows = arms
    .toSorted((a, b) => there[a]! - there[b]!)
    .map((arm) => ({
      arm,
      here: here[arm]!,
      there: there[arm]!,
      ratio: here[arm]! / there[arm]!,
      ofSuffixHere: here[arm]! / here.suffix!,
      ofSuffixThere: there[arm]! / there.suffix!,
    }));
  const pairs = rows.flatMap((low, place) => rows.slice(place + 1).map((high) => [low, high] as const));
  return {
    rows,
    pairs: pairs.length,
    pairsAlike: pairs.filter(([low, high]) => low.here <= high.here).length,
  };
}
