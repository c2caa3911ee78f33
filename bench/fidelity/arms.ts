// The arms: what a server may have in its cells after the same compaction. Each is a recipe, planned by the session
// room's own planner, so that what is measured is what is served; carried out on the runner by build.ts and in PyTorch
// by the peer of compare-transformers.ts. Pure.

import type { Repair, Reuse } from "../../src/chat/chat.ts";
import type { Splice } from "../../src/engine/job.ts";
import { planEdit } from "../../src/session/planner/edit-planner.ts";
import { outside, type Range, within } from "../../src/session/planner/range.ts";
import { nextRepair } from "../../src/session/planner/repair.ts";
import { exactAfter } from "../../src/session/planner/reused-range.ts";
import { lengthOf, type Span, tokensOf } from "../../src/text/span.ts";

/** What a session knows of its sequence. */
export interface Resident {
  readonly spans: readonly Span[];
  readonly relocated: readonly Range[];
  readonly exactLength: number;
}

export interface Edit {
  readonly resident: Resident;
  /** The compacted conversation. */
  readonly wanted: readonly Span[];
  /** Leading spans of both, and how many of `wanted` are the memory behind them. */
  readonly keptSpans: number;
  readonly memorySpans: number;
  /** Any turn behind it: a plan always ends with something new. */
  readonly turn: readonly Span[];
}

/** How an arm comes to its cells, and what a session would know of them: all of it but who computes. */
export interface Recipe extends Resident {
  /** Leading cells of the resident conversation that it begins with; 0: a cold prefill. */
  readonly keep: number;
  /** One after the other, each in the coordinates of what is there then. */
  readonly edits: readonly (readonly Splice[])[];
  /** Tokens a step, where they are not as many as usual. */
  readonly chunk?: number;
  /** Rotation left out on purpose: keys stay turned for where they stood before. */
  readonly noRotation?: true;
}

export interface Arm {
  readonly name: string;
  readonly plan: (edit: Edit) => Recipe;
}

const repairs: readonly Repair[] = [
  ...(["assistant", "assistant+256", "first-assistant"] as const),
  ...([64, 256, 16, 0.25, 0.5, 0.1] as const),
];

/** As they are measured, the telling ones first. The very first is what the others are compared with. */
export const arms: readonly Arm[] = [
  { name: "none", plan: cold },
  { name: "suffix", plan: (edit) => planned(edit, "suffix", "none") },
  ...repairs.slice(0, 5).map(repairArm),
  { name: "dropped", plan: dropped },
  { name: "unturned", plan: (edit) => ({ ...planned(edit, "suffix", "none"), noRotation: true }) },
  ...repairs.slice(5).map(repairArm),
  { name: "uncompacted", plan: uncompacted },
  { name: "forget", plan: (edit) => planned(edit, "prefix", "none") },
  { name: "idle", plan: idle },
  // Other chunks, so that sums are taken in another order: what equal arithmetic may differ by.
  { name: "again", plan: (edit) => ({ ...cold(edit), chunk: 384 }) },
];

function repairArm(repair: Repair): Arm {
  return { name: `suffix repair=${repair}`, plan: (edit) => planned(edit, "suffix", repair) };
}

/** Tokens run through the model for the compaction, the next turn left out. */
export function computedBy({ edits }: Recipe): number {
  return edits.flat().reduce((sum, { tokens }) => sum + tokens.length, 0);
}

function cold({ wanted: spans }: Edit): Recipe {
  const tokens = tokensOf(spans);
  return {
    spans,
    relocated: [],
    exactLength: tokens.length,
    keep: 0,
    edits: [[{ start: 0, end: 0, tokens }]],
  };
}

/** The edit of a request with these options. */
export function planned({ resident, wanted, turn }: Edit, reuse: Reuse, repair: Repair): Recipe {
  const { spans, exactLength, relocated } = resident;
  const plan = planEdit(spans, [...wanted, ...turn], { reuse, repair, exactLength, relocated });
  const splices = withoutEnd(plan.splices, lengthOf(turn));
  return {
    spans: wanted,
    relocated: within(plan.relocatedRanges, 0, lengthOf(wanted)),
    exactLength: exactAfter(splices, exactLength),
    keep: lengthOf(spans),
    edits: [splices],
  };
}

/** The turn comes later, in a fork for each. */
function withoutEnd(splices: readonly Splice[], count: number): readonly Splice[] {
  const last = splices.at(-1)!;
  const tokens = last.tokens.subarray(0, last.tokens.length - count);
  const rest = splices.slice(0, -1);
  return tokens.length === 0 && last.start === last.end ? rest : [...rest, { ...last, tokens }];
}

/** Until the session is exact, in the pieces and the order of idle repair. */
function idle(edit: Edit): Recipe {
  const first = planned(edit, "suffix", "none");
  const tokens = tokensOf(first.spans);
  const edits = [...first.edits];
  let { relocated, exactLength } = first;
  for (;;) {
    const range = nextRepair({ spans: first.spans, relocated, exactLength }, tokens.length, 128);
    if (!range) return { ...first, relocated, exactLength, edits };
    const { start, end } = range;
    const splices = [{ start, end, tokens: tokens.slice(start, end) }];
    edits.push(splices);
    exactLength = exactAfter(splices, exactLength);
    relocated = within(outside(relocated, start, end), exactLength, tokens.length);
  }
}

/** The context without the survivors: what would be lost. */
function dropped({ wanted, keptSpans, memorySpans }: Edit): Recipe {
  const spans = wanted.slice(0, keptSpans + memorySpans);
  const keep = lengthOf(spans.slice(0, keptSpans));
  const tokens = tokensOf(spans.slice(keptSpans));
  const edits = [[{ start: keep, end: keep, tokens }]];
  return { spans, relocated: [], exactLength: lengthOf(spans), keep, edits };
}

function uncompacted({ resident }: Edit): Recipe {
  return { ...resident, keep: lengthOf(resident.spans), edits: [] };
}
