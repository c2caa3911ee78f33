// What sessions look like from outside: one row of a list, the map of one session's cells, and the counts over
// all of them. Values only; nothing here changes a session.
import { lengthOf } from "../text/span.ts";
import type { DiskTier } from "./disk/disk-tier.ts";
import type { EditPlan } from "./planner/edit-planner.ts";
import type { Range } from "./planner/range.ts";
import type { Session } from "./residency/session.ts";

export interface SessionInfo {
  readonly id: string;
  readonly named: boolean;
  readonly busy: boolean;
  readonly tokens: number;
  readonly exactTokens: number;
  /** Milliseconds since the epoch. */
  readonly usedAt: number;
}

/** Ranges are half-open, in cells. */
export interface SessionMap {
  readonly tokens: number;
  /** Cells beyond the exact length: approximate. One range or none. */
  readonly stale: readonly Range[];
  /** Of them, those that were moved by an edit and not computed since. */
  readonly relocated: readonly Range[];
  /** Rendered messages, in order. While a request is served they are those of its prompt, as far as filled. */
  readonly spans: readonly (Range & { readonly role: string })[];
  /** Runs of cells by index - birth: how far they moved since their keys were written. */
  readonly shifts: readonly (Range & { readonly shift: number })[];
  /** One per cell; -1 while unknown. */
  readonly births: readonly number[];
  readonly slots: readonly number[];
}

/** Of all tenants; counts since the start, but for the first six and diskBytes. */
export interface SessionStats {
  readonly sessions: number;
  readonly named: number;
  readonly busy: number;
  /** Cells beyond the exact lengths of idle sessions. */
  readonly staleTokens: number;
  /** Sessions with a version to go back to. */
  readonly undoable: number;
  readonly tokens: number;
  readonly repairedTokens: number;
  /** Sessions let go of to make room in the pool or among each other. */
  readonly evictions: number;
  /** Answers that waited for pages, or were computed again for want of them. */
  readonly preemptions: number;
  readonly diskHits: number;
  readonly diskWrites: number;
  readonly diskBytes: number;
  /** Of prompts, as billed. */
  readonly keptTokens: number;
  readonly relocatedTokens: number;
  readonly computedTokens: number;
}

interface Others {
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

  read(residents: Iterable<Session>, { repairedTokens, evictions, disk }: Others): SessionStats {
    const sessions = Array.from(residents);
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

export function mapOf({ sequence, spans, relocated, exactLength }: Session): SessionMap {
  const { length } = sequence;
  const cells = sequence.cells();
  const births = Array.from({ length }, (_, index) => cells?.births[index] ?? -1);
  const parts: (Range & { readonly role: string })[] = [];
  let start = 0;
  for (const { role, tokens } of spans) {
    const end = Math.min(start + tokens.length, length);
    if (start < end) parts.push({ start, end, role });
    start = end;
  }
  return {
    tokens: length,
    stale: exactLength < length ? [{ start: exactLength, end: length }] : [],
    relocated,
    spans: parts,
    shifts: shiftsOf(births),
    births,
    slots: Array.from({ length }, (_, index) => cells?.slots[index] ?? -1),
  };
}

function shiftsOf(births: readonly number[]): (Range & { readonly shift: number })[] {
  const shifts: { start: number; end: number; shift: number }[] = [];
  for (const [index, birth] of births.entries()) {
    const last = shifts.at(-1);
    if (birth < 0) continue;
    if (last?.end === index && last.shift === index - birth) last.end++;
    else shifts.push({ start: index, end: index + 1, shift: index - birth });
  }
  return shifts;
}
