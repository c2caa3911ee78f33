// What clients and metrics see of sessions: list entries, the map of one session's cells, and totals. The server serves
// these types as they are; StepReport is passed on because the server does not import the engine.
import { lengthOf } from "../text/span.ts";
import type { DiskTier } from "./disk/disk-tier.ts";
import type { EditPlan } from "./planner/edit-planner.ts";
import type { Range } from "./planner/range.ts";
import type { Session } from "./residency/session.ts";

export type { StepReport } from "../engine/step-stats.ts";
export type { Range as CellRange } from "./planner/range.ts";

export interface SessionInfo {
  readonly id: string;
  /** Named by a client; otherwise the server generated the id. */
  readonly named: boolean;
  readonly busy: boolean;
  /** Tokens in the cache. */
  readonly tokens: number;
  /** Leading tokens that equal a cold prefill. */
  readonly exactTokens: number;
  /** Last request, in milliseconds since the epoch. */
  readonly usedAt: number;
}

/** The cells of one session. Ranges are in cells, ordered and disjoint. */
export interface SessionMap {
  readonly tokens: number;
  /** Approximate cells: all beyond the exact length. One range or none. */
  readonly stale: readonly Range[];
  /** Rendered messages, in order. For a busy session those of its prompt, as far as it is computed. */
  readonly spans: readonly (Range & { readonly role: string })[];
  /** Runs of cells with the same index - birth: how far they moved since their keys were written. */
  readonly shifts: readonly (Range & { readonly shift: number })[];
}

/** Over all tenants. Counts since the start, except the first six and diskBytes. */
export interface SessionStats {
  readonly sessions: number;
  readonly named: number;
  readonly busy: number;
  /** Cells beyond the exact lengths of idle sessions. */
  readonly staleTokens: number;
  /** Sessions with a previous version. */
  readonly undoable: number;
  readonly tokens: number;
  readonly repairedTokens: number;
  /** Sessions evicted to free pages or because there were too many. */
  readonly evictions: number;
  /** Requests that waited for pages or were recomputed because there were none. */
  readonly preemptions: number;
  readonly diskHits: number;
  readonly diskWrites: number;
  readonly diskBytes: number;
  /** Sums over the cache usage of all requests. */
  readonly keptTokens: number;
  readonly relocatedTokens: number;
  readonly computedTokens: number;
}

interface OtherCounts {
  readonly repairedTokens: number;
  readonly evictions: number;
  readonly disk: Pick<DiskTier, "hits" | "writes" | "bytes"> | undefined;
}

export class Totals {
  preemptions = 0;
  #kept = 0;
  #relocated = 0;
  #computed = 0;

  add({ kept, relocated, computed }: Pick<EditPlan, "kept" | "relocated" | "computed">): void {
    this.#kept += kept;
    this.#relocated += relocated;
    this.#computed += computed;
  }

  read(sessions: readonly Session[], { repairedTokens, evictions, disk }: OtherCounts): SessionStats {
    const count = (is: (session: Session) => boolean) => sessions.filter(is).length;
    const sum = (of: (session: Session) => number) =>
      sessions.reduce((total, session) => total + of(session), 0);
    return {
      sessions: sessions.length,
      named: count(({ named }) => named),
      busy: count(({ busy }) => busy),
      staleTokens: sum(({ busy, sequence }) => (busy ? 0 : sequence.length - sequence.exactLength)),
      undoable: count(({ previous }) => previous !== undefined),
      tokens: sum(({ sequence }) => sequence.length),
      repairedTokens,
      evictions,
      preemptions: this.preemptions,
      diskHits: disk?.hits ?? 0,
      diskWrites: disk?.writes ?? 0,
      diskBytes: disk?.bytes ?? 0,
      keptTokens: this.#kept,
      relocatedTokens: this.#relocated,
      computedTokens: this.#computed,
    };
  }
}

export function infoOf(session: Session): SessionInfo {
  return {
    id: session.id,
    named: session.named,
    busy: session.busy,
    tokens: session.busy ? session.sequence.length : lengthOf(session.spans),
    exactTokens: session.exactLength,
    usedAt: session.usedAt,
  };
}

export function mapOf({ sequence, spans, exactLength }: Session): SessionMap {
  const { length } = sequence;
  const messages: (Range & { readonly role: string })[] = [];
  let start = 0;
  for (const { role, tokens } of spans) {
    const end = Math.min(start + tokens.length, length);
    if (start < end) messages.push({ start, end, role });
    start = end;
  }
  return {
    tokens: length,
    stale: exactLength < length ? [{ start: exactLength, end: length }] : [],
    spans: messages,
    shifts: shiftsOf(sequence.cells()?.births.subarray(0, length) ?? []),
  };
}

/** A birth of -1 is unknown. */
function shiftsOf(births: Iterable<number>): (Range & { readonly shift: number })[] {
  const shifts: { start: number; end: number; shift: number }[] = [];
  for (const [index, birth] of Array.from(births).entries()) {
    const last = shifts.at(-1);
    if (birth < 0) continue;
    if (last?.end === index && last.shift === index - birth) last.end++;
    else shifts.push({ start: index, end: index + 1, shift: index - birth });
  }
  return shifts;
}
