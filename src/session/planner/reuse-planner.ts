// Finds wanted spans whose cells exist already where an edit cannot keep them: in an older version (an expand brings
// back messages that an earlier edit removed) or in the resident version behind the text that they shall follow (a
// reordering). Adoption only appends. So the plan forks the cells that stay in front and appends every reused run in
// the wanted order; the edit then opens the gaps between them. Pure functions over spans.
//
//   resident  S  ctx-0001 b004 … b010          fork S ctx-0001 b004 … b010
//   older     S  b001 b002 b003 b004           adopt [ start b001, end b003 ) of the older version
//   wanted    S  ctx-0001 b004 … b010  t  b001 b002 b003  u          gaps: t, u
import { lengthOf, type Span } from "../../text/span.ts";
import { countOf, outside, type Range, within } from "./range.ts";
import { isKept, minSurvivors, type ReusedRange, reusedTokens, without } from "./reused-range.ts";

/** A run of whole spans with fewer tokens is computed: it would cost a rotation in every step. */
export const minAdopted = 64;
/** Occurrences of one span that are examined; a text that occurs more often is repetitive. */
const maxOccurrences = 8;

/** Cells that may be adopted: all filled, and exactly these spans. */
export interface Source {
  readonly spans: readonly Span[];
}

/** Cells [start, end) of a source; source -1 is the resident version. */
export interface AdoptedRun extends Range {
  readonly source: number;
}

export interface ReusePlan {
  /** Leading resident cells that stay in place. */
  readonly kept: number;
  /** Appended to the kept cells, in this order. */
  readonly runs: readonly AdoptedRun[];
  /** Where kept cells and runs end up. `startOld` counts in the new sequence before the edit opens gaps. */
  readonly reused: readonly ReusedRange[];
  /** Tokens of the runs that no edit of the resident version could have kept. */
  readonly adopted: number;
  /** Resident cells that are in none of the reused ranges. */
  readonly dropped: number;
}

/** `found`: what an edit alone would keep. Undefined: the sources have nothing to add. */
export function planReuse(
  resident: readonly Span[],
  wanted: readonly Span[],
  found: readonly ReusedRange[],
  sources: readonly Source[],
): ReusePlan | undefined {
  // The last cell is always computed, because its logits are needed.
  const lengthNew = lengthOf(wanted) - 1;
  const adoptable = runsOf([resident, ...sources.map(({ spans }) => spans)], wanted, found).map((run) => ({
    ...run,
    count: Math.min(run.count, lengthNew - run.startNew),
  }));
  if (adoptable.length === 0) return undefined;
  const staying = adoptable
    .reduce(
      (left: readonly ReusedRange[], { startNew, count }) => without(left, startNew, startNew + count),
      found,
    )
    .filter((range) => isKept(range) || range.count >= minSurvivors);
  const adopted = reusedTokens(adoptable) + reusedTokens(staying) - reusedTokens(found);
  if (adopted <= 0) return undefined;
  const kept = staying[0] && isKept(staying[0]) ? staying[0].count : 0;
  const behind = staying.slice(kept > 0 ? 1 : 0).map((range) => ({ ...range, source: -1 }));
  const pieces = [...behind, ...adoptable].sort((a, b) => a.startNew - b.startNew);
  let end = kept;
  const reused: ReusedRange[] = kept > 0 ? [{ startOld: 0, startNew: 0, count: kept }] : [];
  for (const { startNew, count } of pieces) {
    reused.push({ startOld: end, startNew, count });
    end += count;
  }
  const runs = pieces.map(({ source, startOld, count }) => ({
    source,
    start: startOld,
    end: startOld + count,
  }));
  return { kept, runs, reused, adopted, dropped: lengthOf(resident) - usedCells(kept, runs) };
}

/** The relocated cells (in wanted tokens) that this plan does not adopt from another version. */
export function residentOf({ kept, runs, reused }: ReusePlan, relocated: readonly Range[]): Range[] {
  const first = kept > 0 ? 1 : 0;
  return runs.reduce(
    (left: Range[], { source }, index) => {
      const { startNew, count } = reused[first + index]!;
      return source < 0 ? left : outside(left, startNew, startNew + count);
    },
    [...relocated],
  );
}

/** Relocated cells (in wanted tokens) after the runs are appended. `before`: those of the resident version. */
export function relocatedIn({ kept, reused }: ReusePlan, before: readonly Range[]): Range[] {
  const runs = reused
    .slice(kept > 0 ? 1 : 0)
    .map(({ startNew, count }) => ({ start: startNew, end: startNew + count }));
  return [...within(before, 0, kept), ...runs];
}

/** Index of the first token of every span, and the total length. */
export function startsOf(spans: readonly Span[]): number[] {
  const starts = [0];
  for (const { tokens } of spans) starts.push(starts.at(-1)! + tokens.length);
  return starts;
}

interface SourceRange extends ReusedRange {
  readonly source: number;
}

/** Runs of wanted spans, none of them wholly in `found`, that follow each other in a source. */
function runsOf(
  versions: readonly (readonly Span[])[],
  wanted: readonly Span[],
  found: readonly ReusedRange[],
): SourceRange[] {
  const starts = startsOf(wanted);
  const foundRanges = found.map(({ startNew, count }) => ({ start: startNew, end: startNew + count }));
  const missing = wanted.map(({ tokens }, index) => {
    const start = starts[index]!;
    return countOf(within(foundRanges, start, start + tokens.length)) < tokens.length;
  });
  const missingTokens = wanted.reduce(
    (sum, { tokens }, index) => sum + (missing[index] ? tokens.length : 0),
    0,
  );
  if (missingTokens < minAdopted) return [];
  const staying = new Set(wanted.flatMap(({ key }, index) => (missing[index] ? [] : [key])));
  const missingKeys = new Set(wanted.flatMap(({ key }, index) => (missing[index] ? [key] : [])));
  const occurrences = occurrencesOf(versions, missingKeys);
  const runs: SourceRange[] = [];
  for (let index = 0; index < wanted.length; ) {
    let best = { version: 0, first: 0, spans: 0, tokens: 0, repeated: 0 };
    for (const { version, first } of missing[index] ? (occurrences.get(wanted[index]!.key) ?? []) : []) {
      const spans = versions[version]!;
      let [count, tokens, repeated] = [0, 0, 0];
      while (missing[index + count] && spans[first + count]?.key === wanted[index + count]!.key) {
        const { key, tokens: own } = wanted[index + count]!;
        tokens += own.length;
        repeated += staying.has(key) ? own.length : 0;
        count++;
      }
      if (tokens > best.tokens) best = { version, first, spans: count, tokens, repeated };
    }
    // A span that is repeated while the first one stays is new text. Computing it keeps appends exact.
    const taken = best.tokens >= minAdopted && best.repeated * 2 <= best.tokens;
    if (taken) {
      const startOld = lengthOf(versions[best.version]!.slice(0, best.first));
      runs.push({ source: best.version - 1, startOld, startNew: starts[index]!, count: best.tokens });
    }
    index += taken ? best.spans : 1;
  }
  return runs;
}

/** A span by the version that has it and its index there. */
interface Occurrence {
  readonly version: number;
  readonly first: number;
}

function occurrencesOf(
  versions: readonly (readonly Span[])[],
  keys: ReadonlySet<string>,
): Map<string, Occurrence[]> {
  const occurrences = new Map<string, Occurrence[]>();
  for (const [version, spans] of versions.entries()) {
    for (const [first, { key }] of spans.entries()) {
      if (!keys.has(key)) continue;
      const known = occurrences.get(key);
      if (!known) occurrences.set(key, [{ version, first }]);
      else if (known.length < maxOccurrences) known.push({ version, first });
    }
  }
  return occurrences;
}

/** Resident cells that are used, each counted once. */
function usedCells(kept: number, runs: readonly AdoptedRun[]): number {
  let [used, end] = [kept, kept];
  const own = runs.filter(({ source }) => source === -1).sort((a, b) => a.start - b.start);
  for (const run of own) {
    used += Math.max(0, run.end - Math.max(end, run.start));
    end = Math.max(end, run.end);
  }
  return used;
}
