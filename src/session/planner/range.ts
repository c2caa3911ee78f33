// Half-open runs of cells of one sequence, as lists: ordered, disjoint, none empty. Used for the cells that an
// edit relocated and nobody has repaired since. Pure; it knows neither tokens nor who owns the cells.
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
 * Relocated cells after an edit that left `islands` standing, in new coordinates: every survivor behind the
 * edit, and in front of it those of `before`, which is in old coordinates.
 */
export function relocatedAfter(before: readonly Range[], islands: readonly ReusedRange[]): Range[] {
  return islands.flatMap((island) =>
    isKept(island)
      ? within(before, 0, island.count)
      : [{ start: island.startNew, end: island.startNew + island.count }],
  );
}

/** The parts of `ranges`, in new coordinates, that stand in one of `islands`. */
export function standing(ranges: readonly Range[], islands: readonly ReusedRange[]): Range[] {
  return islands.flatMap(({ startNew, count }) => within(ranges, startNew, startNew + count));
}
