// The arms: what a server may have in its cells after the same compaction. Each is planned by the session room's own
// planner and built on a fork of the resident conversation, so that what is measured is what is served.

import type { Repair, Reuse } from "../../src/context/chat.ts";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import type { Splice } from "../../src/engine/job.ts";
import { planEdit } from "../../src/session/diff.ts";
import { outside, type Range, within } from "../../src/session/range.ts";
import { nextRepair } from "../../src/session/repair.ts";
import { lengthOf, type Span, tokensOf } from "../../src/text/span.ts";
import { append, edit, joined, prefill } from "./cells.ts";
import { unturned } from "./unturned.ts";

/** A sequence with what its session would know of it. */
export interface Resident {
  readonly id: SequenceId;
  readonly spans: readonly Span[];
  readonly relocated: readonly Range[];
}

export interface Edit {
  readonly runner: Runner;
  /** A cold sequence, which may have been computed in an earlier run. */
  readonly prefill: (tokens: Int32Array) => Promise<SequenceId>;
  readonly resident: Resident;
  /** The compacted conversation. */
  readonly wanted: readonly Span[];
  /** Leading spans of both, and how many of `wanted` are the memory behind them. */
  readonly keptSpans: number;
  readonly memorySpans: number;
  /** Any turn behind it: a plan always ends with something new. */
  readonly turn: readonly Span[];
}

export interface Built {
  readonly resident: Resident;
  /** Tokens run through the model for the compaction, the next turn left out. */
  readonly computed: number;
}

export interface Arm {
  readonly name: string;
  readonly build: (edit: Edit) => Promise<Built>;
}

const repairs: readonly Repair[] = [
  ...(["assistant", "assistant+256", "first-assistant"] as const),
  ...([64, 256, 16, 0.25, 0.5, 0.1] as const),
];

/** As they are measured, the telling ones first. The very first is what the others are compared with. */
export const arms: readonly Arm[] = [
  { name: "none", build: cold },
  { name: "suffix", build: (edit) => planned(edit, "suffix", "none") },
  ...repairs.slice(0, 5).map(repairArm),
  { name: "dropped", build: dropped },
  { name: "unturned", build: withoutTurn },
  ...repairs.slice(5).map(repairArm),
  { name: "uncompacted", build: uncompacted },
  { name: "forget", build: (edit) => planned(edit, "prefix", "none") },
  { name: "idle", build: idle },
  // Other chunks, so that sums are taken in another order: what equal arithmetic may differ by.
  { name: "again", build: again },
];

function repairArm(repair: Repair): Arm {
  return { name: `suffix repair=${repair}`, build: (edit) => planned(edit, "suffix", repair) };
}

async function cold({ prefill, wanted }: Edit): Promise<Built> {
  return coldly(await prefill(tokensOf(wanted)), wanted);
}

async function again({ runner, wanted }: Edit): Promise<Built> {
  return coldly(await prefill(runner, tokensOf(wanted), 384), wanted);
}

const coldly = (id: SequenceId, wanted: readonly Span[]): Built => ({
  resident: { id, spans: wanted, relocated: [] },
  computed: lengthOf(wanted),
});

/** The edit of a request with these options. */
export async function planned(
  { runner, resident, wanted, turn }: Edit,
  reuse: Reuse,
  repair: Repair,
): Promise<Built> {
  const { length, exactLength } = runner.sequence(resident.id);
  const { relocated } = resident;
  const plan = planEdit(resident.spans, [...wanted, ...turn], { reuse, repair, exactLength, relocated });
  const splices = withoutEnd(plan.splices, lengthOf(turn));
  const id = runner.fork(resident.id, length);
  await edit(runner, id, splices);
  return {
    resident: { id, spans: wanted, relocated: within(plan.relocatedRanges, 0, lengthOf(wanted)) },
    computed: splices.reduce((sum, { tokens }) => sum + tokens.length, 0),
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
async function idle(edit_: Edit): Promise<Built> {
  const { runner } = edit_;
  const built = await planned(edit_, "suffix", "none");
  const { id, spans } = built.resident;
  const tokens = tokensOf(spans);
  let { relocated } = built.resident;
  let { computed } = built;
  for (;;) {
    const { exactLength, length } = runner.sequence(id);
    const range = nextRepair({ spans, relocated, exactLength }, length, 128);
    if (!range) break;
    const { start, end } = range;
    await edit(runner, id, [{ start, end, tokens: tokens.slice(start, end) }]);
    relocated = within(outside(relocated, start, end), runner.sequence(id).exactLength, length);
    computed += end - start;
  }
  return { resident: { id, spans, relocated }, computed };
}

/** The context without the survivors: what would be lost. */
async function dropped({ runner, resident, wanted, keptSpans, memorySpans }: Edit): Promise<Built> {
  const spans = wanted.slice(0, keptSpans + memorySpans);
  const memory = tokensOf(spans.slice(keptSpans));
  const id = runner.fork(resident.id, lengthOf(spans.slice(0, keptSpans)));
  await append(runner, id, memory);
  return { resident: { id, spans, relocated: [] }, computed: memory.length };
}

async function uncompacted({ runner, resident }: Edit): Promise<Built> {
  const id = runner.fork(resident.id, runner.sequence(resident.id).length);
  return { resident: { ...resident, id }, computed: 0 };
}

async function withoutTurn(edit_: Edit): Promise<Built> {
  const { resident, computed } = await planned(edit_, "suffix", "none");
  const id = await unturned(edit_.runner, resident.id);
  edit_.runner.release(resident.id);
  return { resident: { ...resident, id }, computed };
}

export const turnTokens = (turn: readonly Span[]): Int32Array => joined(turn.map(({ tokens }) => tokens));
