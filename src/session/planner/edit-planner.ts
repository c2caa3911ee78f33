// The heart of the session room: resident spans against wanted spans gives the edit that turns one into the
// other, keeping as much as the reuse mode allows. Pure. Old coordinates are those of the resident tokens, new
// ones those of the wanted tokens; ranges are half-open.
//
//   resident  S  b001 b002 b003  b004 … b010            suffix: whole spans that come back in order stay; in
//   wanted    S  ctx-0001        b004 … b010  + turn    what was replaced, a common beginning stays as well,
//             └ kept             └ relocated            and a common end if it is long enough to be worth it
import type { Repair, Reuse } from "../../chat/chat.ts";
import type { Splice } from "../../engine/job.ts";
import { commonLength, type Span, tokensOf } from "../../text/span.ts";
import { matchSpans } from "./match.ts";
import { type Range, relocatedAfter, standing, within } from "./range.ts";
import { repairIslands } from "./repair.ts";
import { type Adoption, planReuse, relocatedIn, residentOf, type Source } from "./reuse-planner.ts";
import {
  clip,
  exactAfter,
  isKept,
  merge,
  minSurvivors,
  type ReusedRange,
  splicesOf,
} from "./reused-range.ts";

export interface EditPlan {
  /**
   * Present where cells come back that an edit alone could not keep. The sequence is then put together anew first,
   * and islands and splices are in coordinates of what it holds then.
   */
  readonly adoption?: Adoption;
  /** What stays; rising in both coordinates. */
  readonly islands: readonly ReusedRange[];
  /** Ordered, disjoint, in old coordinates; the last one ends at the resident length and has tokens. */
  readonly splices: readonly Splice[];
  /** kept + relocated + computed = wanted tokens; see Bill. */
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  /** Resident tokens that go. */
  readonly cut: number;
  /** Reused tokens beyond the exact length after the edit. */
  readonly stale: number;
  /** Of them, those that the wanted tokens do not have; the others are computed again as repair. */
  readonly dropped: number;
  /** Leading cells that equal a cold prefill once the edit is computed. */
  readonly exactLength: number;
  /** Cells relocated by this edit or an earlier one and not repaired; in new coordinates. */
  readonly relocatedRanges: readonly Range[];
  readonly reason: string;
}

export { minSurvivors };

/** A common end inside a replaced region stays from this many tokens on; shorter ones are chance. */
export const minCommonEnd = 32;

export interface DiffOptions {
  readonly reuse: Reuse;
  /** Leading resident cells that equal a cold prefill. */
  readonly exactLength: number;
  readonly repair?: Repair;
  /** Resident cells that earlier edits relocated; repair reaches them too. */
  readonly relocated?: readonly Range[];
  /** Other versions whose cells may be adopted; only under "suffix". */
  readonly sources?: readonly Source[];
}

/** `wanted` has at least one token. */
export function planEdit(resident: readonly Span[], wanted: readonly Span[], options: DiffOptions): EditPlan {
  const tokensOld = tokensOf(resident);
  const tokensNew = tokensOf(wanted);
  const edit = survivors(resident, wanted, tokensOld, tokensNew, options);
  const adoption = adoptable(resident, wanted, edit, options);
  const found = adoption?.islands ?? edit;
  const before = options.relocated ?? [];
  const relocated = adoption ? relocatedIn(adoption, before) : relocatedAfter(before, found);
  // What comes back now is not computed now: that is what it was kept for. A later request may repair it.
  const mendable = adoption ? residentOf(adoption, relocated) : relocated;
  const islands = settle(repairIslands(found, mendable, wanted, options.repair ?? "none"), tokensNew.length);
  const reused = islands.reduce(sumCount, 0);
  const reusable = found.reduce(sumCount, 0);
  const splices = splicesOf(islands, adoption ? reusable : tokensOld.length, tokensNew);
  // What was in front of the first edit has not moved, also where some of it is computed again.
  const front = adoption ? adoption.kept : found.filter(isKept).reduce(sumCount, 0);
  const kept = islands.flatMap((island) => clip(island, 0, front)).reduce(sumCount, 0);
  const exactLength = exactAfter(splices, Math.min(options.exactLength, adoption?.kept ?? tokensOld.length));
  const dropped = adoption ? adoption.dropped : tokensOld.length - reusable;
  const counts = {
    kept,
    relocated: reused - kept,
    computed: tokensNew.length - reused,
    cut: dropped + reusable - reused,
    dropped,
  };
  return {
    ...(adoption && { adoption }),
    ...counts,
    islands,
    splices,
    stale: staleTokens(islands, exactLength),
    exactLength,
    relocatedRanges: within(standing(relocated, islands), exactLength, tokensNew.length),
    reason: reasonOf(
      { ...counts, front, adopted: adoption?.adopted ?? 0 },
      tokensOld.length,
      wanted,
      options,
    ),
  };
}

function adoptable(
  resident: readonly Span[],
  wanted: readonly Span[],
  found: readonly ReusedRange[],
  { reuse, sources }: DiffOptions,
): Adoption | undefined {
  return reuse === "suffix" && sources ? planReuse(resident, wanted, found, sources) : undefined;
}

/** Reused tokens that stand beyond the exact length, in new coordinates. */
export function staleTokens(islands: readonly ReusedRange[], exactLength: number): number {
  return islands.reduce(
    (sum, { startNew, count }) => sum + Math.min(count, Math.max(0, startNew + count - exactLength)),
    0,
  );
}

function survivors(
  resident: readonly Span[],
  wanted: readonly Span[],
  tokensOld: Int32Array,
  tokensNew: Int32Array,
  { reuse, exactLength }: DiffOptions,
): ReusedRange[] {
  if (reuse === "none") return [];
  const common = commonLength(tokensOld, tokensNew);
  const head = (count: number) => settle([{ startOld: 0, startNew: 0, count }], tokensNew.length);
  if (reuse === "prefix") return head(Math.min(common, exactLength));
  const aligned = settle(align(resident, wanted, tokensOld, tokensNew), tokensNew.length);
  // Equal messages elsewhere can draw the alignment away from a beginning that is worth more; and of two
  // that keep as much, the one that relocates nothing is better.
  const leading = head(common);
  return leading.reduce(sumCount, 0) >= aligned.reduce(sumCount, 0) ? leading : aligned;
}

/** Matched spans, and what is equal at the edges of the regions between them. */
function align(
  resident: readonly Span[],
  wanted: readonly Span[],
  tokensOld: Int32Array,
  tokensNew: Int32Array,
): ReusedRange[] {
  const startsOld = startsOf(resident);
  const startsNew = startsOf(wanted);
  const islands: ReusedRange[] = [];
  let spanOld = 0;
  let spanNew = 0;
  let endOld = 0;
  let endNew = 0;
  const end = [resident.length, wanted.length] as const;
  for (const [old, next] of [...matchSpans(resident, wanted), end]) {
    // Replaced one for one: each message is compared with the one that stands in its place.
    const rows = old - spanOld === next - spanNew ? old - spanOld : 1;
    for (let row = 1; row <= rows; row++) {
      const toOld = startsOld[row === rows ? old : spanOld + row]!;
      const toNew = startsNew[row === rows ? next : spanNew + row]!;
      islands.push(...edges(tokensOld, tokensNew, endOld, toOld, endNew, toNew));
      endOld = toOld;
      endNew = toNew;
    }
    // Shorter than the wanted span where the last resident one is only its beginning.
    const count = resident[old]?.tokens.length ?? 0;
    islands.push({ startOld: endOld, startNew: endNew, count });
    endOld += count;
    endNew += count;
    spanOld = old + 1;
    spanNew = next + 1;
  }
  return merge(islands);
}

/** Common beginning and common end of two token ranges. */
function edges(
  tokensOld: Int32Array,
  tokensNew: Int32Array,
  startOld: number,
  endOld: number,
  startNew: number,
  endNew: number,
): ReusedRange[] {
  const old = tokensOld.subarray(startOld, endOld);
  const next = tokensNew.subarray(startNew, endNew);
  const head = commonLength(old, next);
  const tail = commonEnd(old.subarray(head), next.subarray(head));
  const islands = [{ startOld, startNew, count: head }];
  if (tail >= minCommonEnd) {
    islands.push({ startOld: endOld - tail, startNew: endNew - tail, count: tail });
  }
  return islands;
}

/**
 * What stays of islands in the end. The last cell must be computed, since its logits are wanted: a survivor
 * there is opened again. Runs too short to be worth it go, but for the one at the very front.
 */
function settle(islands: readonly ReusedRange[], lengthNew: number): ReusedRange[] {
  const last = islands.at(-1);
  const full = last !== undefined && last.startNew + last.count === lengthNew;
  const reopened = full ? [...islands.slice(0, -1), { ...last, count: last.count - 1 }] : islands;
  return merge(reopened).filter((island) => isKept(island) || island.count >= minSurvivors);
}

function commonEnd(a: Int32Array, b: Int32Array): number {
  const most = Math.min(a.length, b.length);
  let count = 0;
  while (count < most && a[a.length - 1 - count] === b[b.length - 1 - count]) count++;
  return count;
}

function startsOf(spans: readonly Span[]): number[] {
  const starts = [0];
  for (const { tokens } of spans) starts.push(starts.at(-1)! + tokens.length);
  return starts;
}

function sumCount(sum: number, { count }: ReusedRange): number {
  return sum + count;
}

interface Counts extends Pick<EditPlan, "kept" | "relocated" | "computed" | "cut" | "dropped"> {
  readonly adopted: number;
  /** Where the edit begins, repair aside. */
  readonly front: number;
}

function reasonOf(
  { kept, relocated, computed, cut, dropped, adopted, front }: Counts,
  lengthOld: number,
  wanted: readonly Span[],
  { reuse, exactLength }: DiffOptions,
): string {
  if (lengthOld === 0 && adopted === 0) return "Nothing was resident.";
  if (reuse === "none") return `Reuse is "none": all ${lengthOld} resident tokens were cut.`;
  if (reuse === "prefix") {
    const why =
      kept === exactLength && kept < lengthOld
        ? "where exact cells end"
        : `at the first difference, in ${placeOf(wanted, kept)}`;
    return cut === 0
      ? `All ${kept} resident tokens are a prefix of the prompt.`
      : `Reuse is "prefix": it stops after ${kept} tokens, ${why}; ${cut} were cut.`;
  }
  if (kept + relocated === 0) return `None of the ${lengthOld} resident tokens could stay.`;
  const repaired = cut - dropped;
  const survivors = repaired === 1 ? "1 survivor was" : `${repaired} survivors were`;
  const mended = repaired > 0 ? ` ${survivors} recomputed as repair.` : "";
  const place = `token ${front}, in ${placeOf(wanted, front)}`;
  if (adopted > 0) {
    return `${adopted} tokens were adopted as they were computed earlier, behind ${place}; ${dropped} resident tokens were cut.${mended}`;
  }
  if (dropped === 0 && relocated === 0)
    return `All ${lengthOld} resident tokens stayed; ${computed - repaired} were appended.${mended}`;
  if (relocated === 0)
    return `Prompt and resident text part at ${place}; ${dropped} resident tokens were cut.${mended}`;
  return `Edited at ${place}: ${dropped} resident tokens were cut and ${relocated} behind them stayed.${mended}`;
}

/** Where a token of the prompt stands, in words; spans are counted from 1. */
function placeOf(wanted: readonly Span[], token: number): string {
  let end = 0;
  for (const [place, { role, tokens }] of wanted.entries()) {
    end += tokens.length;
    if (token < end) return `span ${place + 1} (${role})`;
  }
  return "the end";
}
