// Cells that come back without being computed: wanted spans that stand somewhere already, only not where an edit
// could leave them. They were taken out by an earlier edit and are held by an older version (an expand), or they
// stand in the resident version behind what they are to follow (a reordering). Adoption only appends, so the
// conversation is put together anew: a fork of what stays in place, and behind it, in the wanted order, every
// run that is reused. Nothing is copied but bookkeeping. Pure: it sees spans, and tells places.
//
//   resident  S  ctx-0001 b004 … b010          fork S ctx-0001 b004 … b010
//   older     S  b001 b002 b003 b004           adopt [ start b001, end b003 ) of the older version
//   wanted    S  ctx-0001 b004 … b010  t  b001 b002 b003  u          gaps: t, u
import { lengthOf, type Span } from "../../text/span.ts";
import { outside, type Range, within } from "./range.ts";
import { isKept, minSurvivors, type ReusedRange, without } from "./reused-range.ts";

/** A run of whole spans with fewer tokens is computed: it would cost a rotation in every step. */
export const minAdopted = 64;
/** Places of one text that are looked at; more are repetitions. */
const maxPositions = 8;

/** Cells that may be adopted: all filled, and exactly these spans. */
export interface Source {
  readonly spans: readonly Span[];
}

/** Cells [start, end) of a source; -1 is the resident version itself. */
export interface Run extends Range {
  readonly source: number;
}

export interface Adoption {
  /** Leading resident cells that stay where they are. */
  readonly kept: number;
  /** What is appended to them, in order. */
  readonly runs: readonly Run[];
  /** Where kept cells and runs come to stand: `startOld` in the cells put together, which hold nothing else. */
  readonly islands: readonly ReusedRange[];
  /** Of the runs, tokens that no edit of the resident version could have kept. */
  readonly adopted: number;
  /** Resident cells that are in none of the islands. */
  readonly dropped: number;
}

/** `found`: what an edit would keep. Undefined: nothing more is to be had. */
export function planReuse(
  resident: readonly Span[],
  wanted: readonly Span[],
  found: readonly ReusedRange[],
  sources: readonly Source[],
): Adoption | undefined {
  // The last cell is computed in any case.
  const lengthNew = lengthOf(wanted) - 1;
  const places = runsOf([resident, ...sources.map(({ spans }) => spans)], wanted, found).map((place) => ({
    ...place,
    count: Math.min(place.count, lengthNew - place.startNew),
  }));
  if (places.length === 0) return undefined;
  const stay = places
    .reduce(
      (left: readonly ReusedRange[], { startNew, count }) => without(left, startNew, startNew + count),
      found,
    )
    .filter((island) => isKept(island) || island.count >= minSurvivors);
  const adopted = sum(places) + sum(stay) - sum(found);
  if (adopted <= 0) return undefined;
  const kept = stay[0] && isKept(stay[0]) ? stay[0].count : 0;
  const behind = stay.slice(kept > 0 ? 1 : 0).map((island) => ({ ...island, source: -1 }));
  const pieces = [...behind, ...places].sort((a, b) => a.startNew - b.startNew);
  let end = kept;
  const islands: ReusedRange[] = kept > 0 ? [{ startOld: 0, startNew: 0, count: kept }] : [];
  for (const { startNew, count } of pieces) {
    islands.push({ startOld: end, startNew, count });
    end += count;
  }
  const runs = pieces.map(({ source, startOld, count }) => ({
    source,
    start: startOld,
    end: startOld + count,
  }));
  return { kept, runs, islands, adopted, dropped: lengthOf(resident) - usedCells(kept, runs) };
}

/** Of relocated cells, in wanted tokens, those that did not come from another version just now. */
export function residentOf({ kept, runs, islands }: Adoption, relocated: readonly Range[]): Range[] {
  const first = kept > 0 ? 1 : 0;
  return runs.reduce(
    (left: Range[], { source }, place) => {
      const { startNew, count } = islands[first + place]!;
      return source < 0 ? left : outside(left, startNew, startNew + count);
    },
    [...relocated],
  );
}

/** Relocated cells once the runs are appended, in wanted tokens; `before` are those of the resident version. */
export function relocatedIn({ kept, islands }: Adoption, before: readonly Range[]): Range[] {
  const runs = islands
    .slice(kept > 0 ? 1 : 0)
    .map(({ startNew, count }) => ({ start: startNew, end: startNew + count }));
  return [...within(before, 0, kept), ...runs];
}

interface Place extends ReusedRange {
  readonly source: number;
}

/** Runs of wanted spans, none of them wholly in `found`, that stand one behind the other in a source. */
function runsOf(
  versions: readonly (readonly Span[])[],
  wanted: readonly Span[],
  found: readonly ReusedRange[],
): Place[] {
  const starts = startsOf(wanted);
  const missing = wanted.map(({ tokens }, place) => {
    const [start, end] = [starts[place]!, starts[place]! + tokens.length];
    const here = found.map(({ startNew, count }) => ({ start: startNew, end: startNew + count }));
    return within(here, start, end).reduce((sum, range) => sum + range.end - range.start, 0) < end - start;
  });
  const least = wanted.reduce((sum, { tokens }, place) => sum + (missing[place] ? tokens.length : 0), 0);
  if (least < minAdopted) return [];
  const stays = new Set(wanted.flatMap(({ key }, at) => (missing[at] ? [] : [key])));
  const places = placesOf(versions, new Set(wanted.flatMap(({ key }, at) => (missing[at] ? [key] : []))));
  const runs: Place[] = [];
  for (let at = 0; at < wanted.length; ) {
    let best = { version: 0, first: 0, spans: 0, tokens: 0, repeated: 0 };
    for (const { version, first } of missing[at] ? (places.get(wanted[at]!.key) ?? []) : []) {
      const spans = versions[version]!;
      let [count, tokens, repeated] = [0, 0, 0];
      while (missing[at + count] && spans[first + count]?.key === wanted[at + count]!.key) {
        const { key, tokens: own } = wanted[at + count]!;
        tokens += own.length;
        repeated += stays.has(key) ? own.length : 0;
        count++;
      }
      if (tokens > best.tokens) best = { version, first, spans: count, tokens, repeated };
    }
    // What is said again while it still stands is new text: an append of it stays exact.
    const taken = best.tokens >= minAdopted && best.repeated * 2 <= best.tokens;
    if (taken) {
      const startOld = lengthOf(versions[best.version]!.slice(0, best.first));
      runs.push({ source: best.version - 1, startOld, startNew: starts[at]!, count: best.tokens });
    }
    at += taken ? best.spans : 1;
  }
  return runs;
}

interface SpanPlace {
  readonly version: number;
  readonly first: number;
}

function placesOf(
  versions: readonly (readonly Span[])[],
  keys: ReadonlySet<string>,
): Map<string, SpanPlace[]> {
  const places = new Map<string, SpanPlace[]>();
  for (const [version, spans] of versions.entries()) {
    for (const [first, { key }] of spans.entries()) {
      if (!keys.has(key)) continue;
      const known = places.get(key);
      if (!known) places.set(key, [{ version, first }]);
      else if (known.length < maxPositions) known.push({ version, first });
    }
  }
  return places;
}

/** Resident cells that are used, each once. */
function usedCells(kept: number, runs: readonly Run[]): number {
  let [used, end] = [kept, kept];
  const own = runs.filter(({ source }) => source === -1).sort((a, b) => a.start - b.start);
  for (const run of own) {
    used += Math.max(0, run.end - Math.max(end, run.start));
    end = Math.max(end, run.end);
  }
  return used;
}

function startsOf(spans: readonly Span[]): number[] {
  const starts = [0];
  for (const { tokens } of spans) starts.push(starts.at(-1)! + tokens.length);
  return starts;
}

function sum(islands: readonly ReusedRange[]): number {
  return islands.reduce((total, { count }) => total + count, 0);
}
