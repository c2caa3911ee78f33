// Ranges of cells that an edit reuses, and the splices between them. A reused range has the same tokens at an old
// and at a new index. Choosing the reused ranges decides the whole edit: what lies between two of them is cut and
// replaced by the wanted tokens. Pure functions.
import type { Splice } from "../../engine/job.ts";

export interface ReusedRange {
  /** Index in the resident tokens. */
  readonly startOld: number;
  /** Index in the wanted tokens. */
  readonly startNew: number;
  readonly count: number;
}

/** Shorter runs behind an edit are recomputed: rotating them costs more than computing them. */
export const minSurvivors = 16;

/** The splices that leave exactly `reused`, whose ranges rise in both coordinates and do not touch. */
export function splicesOf(reused: readonly ReusedRange[], lengthOld: number, wanted: Int32Array): Splice[] {
  const splices: Splice[] = [];
  let endOld = 0;
  let endNew = 0;
  const end: ReusedRange = { startOld: lengthOld, startNew: wanted.length, count: 0 };
  for (const { startOld, startNew, count } of [...reused, end]) {
    if (startOld > endOld || startNew > endNew) {
      splices.push({ start: endOld, end: startOld, tokens: wanted.slice(endNew, startNew) });
    }
    endOld = startOld + count;
    endNew = startNew + count;
  }
  return splices;
}

/** Tokens in all ranges. */
export function reusedTokens(reused: readonly ReusedRange[]): number {
  return reused.reduce((sum, { count }) => sum + count, 0);
}

/** Joins ranges that touch in both coordinates and drops empty ones. */
export function merge(reused: readonly ReusedRange[]): ReusedRange[] {
  const merged: ReusedRange[] = [];
  for (const range of reused) {
    const last = merged.at(-1);
    const touches =
      last && last.startOld + last.count === range.startOld && last.startNew + last.count === range.startNew;
    if (touches) merged[merged.length - 1] = { ...last, count: last.count + range.count };
    else if (range.count > 0) merged.push(range);
  }
  return merged;
}

/** The parts outside [start, end) of the wanted tokens. */
export function without(reused: readonly ReusedRange[], start: number, end: number): ReusedRange[] {
  return reused.flatMap((range) =>
    [clip(range, 0, start), clip(range, end, Number.POSITIVE_INFINITY)].flat(),
  );
}

/** The part inside [start, end) of the wanted tokens: one range or none. */
export function clip(range: ReusedRange, start: number, end: number): ReusedRange[] {
  const from = Math.max(start, range.startNew);
  const to = Math.min(end, range.startNew + range.count);
  if (from >= to) return [];
  return [{ startOld: range.startOld + from - range.startNew, startNew: from, count: to - from }];
}

/** Whether it is the range at the very front, with nothing changed before it. Only such cells can be exact. */
export function isKept(range: ReusedRange): boolean {
  return range.startOld === 0 && range.startNew === 0;
}

/**
 * The exact length after an edit, in new coordinates. An edit inside the exact cells sets it to the end of the first
 * inserted text, because later cells attended to the old text. An edit behind the exact cells does not change it.
 */
export function exactAfter(splices: readonly Splice[], exactLength: number): number {
  const first = splices[0];
  if (!first || exactLength < first.start) return exactLength;
  return first.start + first.tokens.length;
}
