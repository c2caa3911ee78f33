// Which compactions are measured: the cells of the grids, as data. How one is measured is in-process-server.ts. Dear arms
// recompute most of a prompt, so they have fewer conditions than those that compute a summary.
import type { Repair, Reuse } from "../../src/chat/chat.ts";

export type CutPosition = "front" | "middle" | "end";

export interface Arm {
  readonly name: string;
  readonly reuse: Reuse;
  readonly repair: Repair;
  readonly forget?: boolean;
  /** Computes everything behind the edit, or the whole prompt. */
  readonly isDear: boolean;
}

export const arms = {
  suffix: { name: "suffix", reuse: "suffix", repair: "none", isDear: false },
  repair16: { name: "repair: 16", reuse: "suffix", repair: 16, isDear: false },
  assistant: { name: "repair: assistant", reuse: "suffix", repair: "assistant", isDear: false },
  prefix: { name: "prefix", reuse: "prefix", repair: "none", isDear: true },
  none: { name: "none", reuse: "none", repair: "none", isDear: true },
  forget: { name: "forget", reuse: "suffix", repair: "none", forget: true, isDear: true },
} as const satisfies Record<string, Arm>;

export interface Cell {
  readonly context: number;
  readonly place: CutPosition;
  /** Of the exchanges, removed. */
  readonly share: number;
  /** Tokens. */
  readonly summary: number;
  readonly arm: Arm;
  readonly repeat: number;
}

/** The share, removed in so many compactions one after the other, front to back, each to a summary. */
export interface Chain {
  readonly context: number;
  readonly length: number;
  readonly share: number;
  readonly summary: number;
}

export interface Grid {
  readonly contexts: readonly number[];
  readonly cells: readonly Cell[];
  readonly chains: readonly Chain[];
}

export const gridNames = ["headline", "full", "quick"] as const;
export type GridName = (typeof gridNames)[number];

export const defaultContexts: Readonly<Record<GridName, readonly number[]>> = {
  headline: [2000, 4000, 8000, 16_000],
  full: [2000, 4000, 8000, 16_000, 32_000],
  quick: [2000],
};

const places: readonly CutPosition[] = ["front", "middle", "end"];
const shares = [0.25, 0.5, 0.75];
const summaries = [64, 256, 1024];

type Condition = Pick<Cell, "place" | "share" | "summary">;
const usual: Condition = { place: "front", share: 0.5, summary: 256 };

export function gridOf(name: GridName, contexts: readonly number[], repeat: number): Grid {
  const cells = contexts.flatMap((context) =>
    conditions[name].flatMap(([chosen, condition]) =>
      chosen.map((arm) => ({ ...condition, context, arm, repeat: repeatOf(arm, context, repeat) })),
    ),
  );
  const lengths = { headline: [1, 5, 20], full: [1, 5, 20], quick: [5] }[name];
  const chains = contexts.flatMap((context) =>
    lengths.map((length) => ({ context, length, share: 0.75, summary: 64 })),
  );
  return { contexts, cells, chains };
}

/** A dear arm on a long context takes minutes, and its time is certain to a few percent all the same. */
function repeatOf({ isDear }: Arm, context: number, repeat: number): number {
  return isDear && context > 4000 ? 1 : repeat;
}

const every: readonly Arm[] = Object.values(arms);
const cheap = [arms.suffix, arms.repair16];

const conditions: Readonly<Record<GridName, readonly (readonly [readonly Arm[], Condition])[]>> = {
  quick: [[[arms.suffix, arms.prefix, arms.none], { ...usual, summary: 64 }]],
  headline: [
    [every, usual],
    [[arms.suffix], { ...usual, place: "middle" }],
    [[arms.suffix], { ...usual, place: "end" }],
    [[arms.suffix], { ...usual, share: 0.25 }],
    [[arms.suffix], { ...usual, share: 0.75 }],
    [[arms.suffix], { ...usual, summary: 64 }],
    [[arms.suffix], { ...usual, summary: 1024 }],
  ],
  full: [
    ...places.map((place) => [every.filter(({ isDear }) => isDear), { ...usual, place }] as const),
    ...shares.map((share) => [[arms.assistant], { ...usual, share }] as const),
    ...places.flatMap((place) =>
      shares.flatMap((share) => summaries.map((summary) => [cheap, { place, share, summary }] as const)),
    ),
  ],
};
