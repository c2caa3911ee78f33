// Half-open runs of cells of one sequence, as lists: ordered, disjoint, none empty. Pure functions.
import { isKept, type ReusedRange } from "./reused-range.ts";

export interface Range {
  readonly start: number;
  readonly end: number;
}

export function countOf(ranges: readonly Range[]): number {
  return ranges.reduce((sum, { start, end }) => sum + end - start, 0);
}

/** The parts inside [start, end). */
export function within(ranges: readonly Range[], start: number, end: number): Range[] {
  return ranges.flatMap((range) => {
    const part = { start: Math.max(range.start, start), end: Math.min(range.end, end) };
    return part.start < part.end ? [part] : [];
  });
}

/** The parts outside [start, end). */
export function outside(ranges: readonly Range[], start: number, end: number): Range[] {
  return [...within(ranges, 0, start), ...within(ranges, end, Number.POSITIVE_INFINITY)];
}

/**
 * Relocated cells after an edit that keeps `reused`, in new coordinates: all reused cells behind the first edit, and
 * in front of it the cells in `before` (old coordinates).
 */
export function relocatedAfter(before: readonly Range[], reused: readonly ReusedRange[]): Range[] {
  return reused.flatMap((range) =>
    isKept(range)
      ? within(before, 0, range.count)
      : [{ start: range.startNew, end: range.startNew + range.count }],
  );
}

/** The parts of `ranges` (new coordinates) that lie in one of `reused`. */
export function withinReused(ranges: readonly Range[], reused: readonly ReusedRange[]): Range[] {
  return reused.flatMap(({ startNew, count }) => within(ranges, startNew, startNew + count));
}
