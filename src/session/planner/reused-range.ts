// Survivors of an edit, and the splices between them. An island is a run of cells that stay: it is the same
// tokens at an old and at a new place. Everything that is decided about an edit is decided by choosing
// islands; what lies between two of them is cut, and the wanted tokens go there. Pure.
import type { Splice } from "../../engine/job.ts";

export interface ReusedRange {
  /** In the resident tokens. */
  readonly startOld: number;
  /** In the wanted tokens. */
  readonly startNew: number;
  readonly count: number;
}

/** A survivor run behind an edit shorter than this is recomputed: it costs more rotations than it saves. */
export const minSurvivors = 16;

/** The splices that leave exactly `islands` standing; `islands` rise in both coordinates and do not touch. */
export function splicesOf(islands: readonly ReusedRange[], lengthOld: number, wanted: Int32Array): Splice[] {
  const splices: Splice[] = [];
  let endOld = 0;
  let endNew = 0;
  const end: ReusedRange = { startOld: lengthOld, startNew: wanted.length, count: 0 };
  for (const { startOld, startNew, count } of [...islands, end]) {
    if (startOld > endOld || startNew > endNew) {
      splices.push({ start: endOld, end: startOld, tokens: wanted.slice(endNew, startNew) });
    }
    endOld = startOld + count;
    endNew = startNew + count;
  }
  return splices;
}

/** Islands that touch on both sides become one. */
export function merge(islands: readonly ReusedRange[]): ReusedRange[] {
  const merged: ReusedRange[] = [];
  for (const island of islands) {
    const last = merged.at(-1);
    const touches =
      last &&
      last.startOld + last.count === island.startOld &&
      last.startNew + last.count === island.startNew;
    if (touches) merged[merged.length - 1] = { ...last, count: last.count + island.count };
    else if (island.count > 0) merged.push(island);
  }
  return merged;
}

/** What is left of the islands outside [start, end) of the wanted tokens. */
export function without(islands: readonly ReusedRange[], start: number, end: number): ReusedRange[] {
  return islands.flatMap((island) =>
    [clip(island, 0, start), clip(island, end, Number.POSITIVE_INFINITY)].flat(),
  );
}

/** The part of an island inside [start, end) of the wanted tokens: one island or none. */
export function clip(island: ReusedRange, start: number, end: number): ReusedRange[] {
  const from = Math.max(start, island.startNew);
  const to = Math.min(end, island.startNew + island.count);
  if (from >= to) return [];
  return [{ startOld: island.startOld + from - island.startNew, startNew: from, count: to - from }];
}

/** The first island, if it stands where it stood at the very front: nothing in front of it changed. */
export function isKept(island: ReusedRange): boolean {
  return island.startOld === 0 && island.startNew === 0;
}

/**
 * The exact length after an edit (design §9): an edit inside the exact cells moves it to the end of the text
 * inserted there, since what follows saw other text; an edit behind them leaves it. In new coordinates.
 */
export function exactAfter(splices: readonly Splice[], exactLength: number): number {
  const first = splices[0];
  if (!first || exactLength < first.start) return exactLength;
  return first.start + first.tokens.length;
}
