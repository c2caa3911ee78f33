// Plans an edit: compares resident spans with wanted spans and returns the splices that turn one into the other,
// keeping as much as the reuse mode allows. Pure functions. Old coordinates count resident tokens, new coordinates
// count wanted tokens; ranges are half-open.
//
//   resident  S  b001 b002 b003  b004 … b010            suffix: whole spans that occur again in order stay; in
//   wanted    S  ctx-0001        b004 … b010  + turn    replaced text, a common prefix stays, and a common
//             └ kept             └ relocated            suffix if it is long enough
import type { Repair, Reuse } from "../../chat/chat.ts";
import type { Splice } from "../../engine/job.ts";
import { commonLength, type Span, tokensOf } from "../../text/span.ts";
import { matchSpans } from "./match.ts";
import { type Range, relocatedAfter, within, withinReused } from "./range.ts";
import { withoutRepaired } from "./repair.ts";
import {
  planReuse,
  type ReusePlan,
  relocatedIn,
  residentOf,
  type Source,
  startsOf,
} from "./reuse-planner.ts";
import {
  clip,
  exactAfter,
  isKept,
  merge,
  minSurvivors,
  type ReusedRange,
  reusedTokens,
  splicesOf,
} from "./reused-range.ts";

export interface EditPlan {
  /**
   * Present if cells are adopted that an edit alone could not keep. A new sequence is then built first, and `reused`
   * and `splices` count old coordinates in that sequence.
   */
  readonly reusePlan?: ReusePlan;
  /** What stays; rising in both coordinates. */
  readonly reused: readonly ReusedRange[];
  /** Ordered, disjoint, in old coordinates. The last one ends at the resident length and has tokens. */
  readonly splices: readonly Splice[];
  /** kept + relocated + computed = wanted tokens; see CacheUsage. */
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  /** Resident tokens that are cut. */
  readonly cut: number;
  /** Reused tokens beyond the exact length after the edit. */
  readonly stale: number;
  /** Cut tokens that are not in the wanted tokens. The other cut tokens are recomputed as repair. */
  readonly dropped: number;
  /** Leading cells that equal a cold prefill once the edit is computed. */
  readonly exactLength: number;
  /** Cells relocated by this edit or an earlier one and not repaired; in new coordinates. */
  readonly relocatedRanges: readonly Range[];
  readonly reason: string;
}

export { minSurvivors };

/** A common suffix of replaced text is kept from this many tokens on; shorter ones match by chance. */
export const minCommonSuffix = 32;

export interface EditOptions {
  readonly reuse: Reuse;
  /** Leading resident cells that equal a cold prefill. */
  readonly exactLength: number;
  readonly repair?: Repair;
  /** Resident cells that earlier edits relocated; repair reaches them too. */
  readonly relocated?: readonly Range[];
  /** Other versions whose cells may be adopted; only used with "suffix". */
  readonly sources?: readonly Source[];
}

/** `wanted` has at least one token. */
export function planEdit(resident: readonly Span[], wanted: readonly Span[], options: EditOptions): EditPlan {
  const tokensOld = tokensOf(resident);
  const tokensNew = tokensOf(wanted);
  const survivors = survivorsOf(resident, wanted, tokensOld, tokensNew, options);
  const { sources } = options;
  const reusePlan =
    options.reuse === "suffix" && sources ? planReuse(resident, wanted, survivors, sources) : undefined;
  const found = reusePlan?.reused ?? survivors;
  const before = options.relocated ?? [];
  const relocated = reusePlan ? relocatedIn(reusePlan, before) : relocatedAfter(before, found);
  // Cells adopted from another version are not repaired in the same request: they were kept to avoid computing them.
  const repairable = reusePlan ? residentOf(reusePlan, relocated) : relocated;
  const reused = settle(
    withoutRepaired(found, repairable, wanted, options.repair ?? "none"),
    tokensNew.length,
  );
  const countReused = reusedTokens(reused);
  const countFound = reusedTokens(found);
  const splices = splicesOf(reused, reusePlan ? countFound : tokensOld.length, tokensNew);
  // Cells in front of the first edit did not move, even where repair recomputes some of them.
  const front = reusePlan ? reusePlan.kept : reusedTokens(found.filter(isKept));
  const kept = reusedTokens(reused.flatMap((range) => clip(range, 0, front)));
  const exactLength = exactAfter(splices, Math.min(options.exactLength, reusePlan?.kept ?? tokensOld.length));
  const dropped = reusePlan ? reusePlan.dropped : tokensOld.length - countFound;
  const counts = {
    kept,
    relocated: countReused - kept,
    computed: tokensNew.length - countReused,
    cut: dropped + countFound - countReused,
    dropped,
  };
  return {
    ...(reusePlan && { reusePlan }),
    ...counts,
    reused,
    splices,
    stale: staleTokens(reused, exactLength),
    exactLength,
    relocatedRanges: within(withinReused(relocated, reused), exactLength, tokensNew.length),
    reason: reasonOf(
      { ...counts, front, adopted: reusePlan?.adopted ?? 0 },
      tokensOld.length,
      wanted,
      options,
    ),
  };
}

/** Reused tokens beyond the exact length, which is in new coordinates. */
export function staleTokens(reused: readonly ReusedRange[], exactLength: number): number {
  return reusedTokens(reused.flatMap((range) => clip(range, exactLength, Number.POSITIVE_INFINITY)));
}

/** What an edit of the resident version keeps, before repair. */
function survivorsOf(
  resident: readonly Span[],
  wanted: readonly Span[],
  tokensOld: Int32Array,
  tokensNew: Int32Array,
  { reuse, exactLength }: EditOptions,
): ReusedRange[] {
  if (reuse === "none") return [];
  const common = commonLength(tokensOld, tokensNew);
  const head = (count: number) => settle([{ startOld: 0, startNew: 0, count }], tokensNew.length);
  if (reuse === "prefix") return head(Math.min(common, exactLength));
  const aligned = settle(align(resident, wanted, tokensOld, tokensNew), tokensNew.length);
  // Equal messages elsewhere can pull the alignment away from a longer common prefix. If both keep as many tokens,
  // the prefix is better because it relocates nothing.
  const leading = head(common);
  return reusedTokens(leading) >= reusedTokens(aligned) ? leading : aligned;
}

/** Matched spans, and the common edges of the regions between them. */
function align(
  resident: readonly Span[],
  wanted: readonly Span[],
  tokensOld: Int32Array,
  tokensNew: Int32Array,
): ReusedRange[] {
  const startsOld = startsOf(resident);
  const startsNew = startsOf(wanted);
  const reused: ReusedRange[] = [];
  let spanOld = 0;
  let spanNew = 0;
  let endOld = 0;
  let endNew = 0;
  const end = [resident.length, wanted.length] as const;
  for (const [old, next] of [...matchSpans(resident, wanted), end]) {
    // If as many messages were inserted as cut, each is compared with the one at the same index.
    const rows = old - spanOld === next - spanNew ? old - spanOld : 1;
    for (let row = 1; row <= rows; row++) {
      const toOld = startsOld[row === rows ? old : spanOld + row]!;
      const toNew = startsNew[row === rows ? next : spanNew + row]!;
      reused.push(...edges(tokensOld, tokensNew, endOld, toOld, endNew, toNew));
      endOld = toOld;
      endNew = toNew;
    }
    // Shorter than the wanted span if the last resident span is incomplete.
    const count = resident[old]?.tokens.length ?? 0;
    reused.push({ startOld: endOld, startNew: endNew, count });
    endOld += count;
    endNew += count;
    spanOld = old + 1;
    spanNew = next + 1;
  }
  return merge(reused);
}

/** Common prefix and common suffix of two token ranges. */
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
  const tail = commonSuffix(old.subarray(head), next.subarray(head));
  const reused = [{ startOld, startNew, count: head }];
  if (tail >= minCommonSuffix) {
    reused.push({ startOld: endOld - tail, startNew: endNew - tail, count: tail });
  }
  return reused;
}

/**
 * Removes the last wanted cell, which must be computed because its logits are needed, and runs shorter than
 * `minSurvivors`, except the one at the very front.
 */
function settle(reused: readonly ReusedRange[], lengthNew: number): ReusedRange[] {
  const last = reused.at(-1);
  const full = last !== undefined && last.startNew + last.count === lengthNew;
  const reopened = full ? [...reused.slice(0, -1), { ...last, count: last.count - 1 }] : reused;
  return merge(reopened).filter((range) => isKept(range) || range.count >= minSurvivors);
}

function commonSuffix(a: Int32Array, b: Int32Array): number {
  const max = Math.min(a.length, b.length);
  let count = 0;
  while (count < max && a[a.length - 1 - count] === b[b.length - 1 - count]) count++;
  return count;
}

interface Counts extends Pick<EditPlan, "kept" | "relocated" | "computed" | "cut" | "dropped"> {
  readonly adopted: number;
  /** Index of the first edited token, repair not counted. */
  readonly front: number;
}

function reasonOf(
  { kept, relocated, computed, cut, dropped, adopted, front }: Counts,
  lengthOld: number,
  wanted: readonly Span[],
  { reuse, exactLength }: EditOptions,
): string {
  if (lengthOld === 0 && adopted === 0) return "Nothing was resident.";
  if (reuse === "none") return `Reuse is "none": all ${lengthOld} resident tokens were cut.`;
  if (reuse === "prefix") {
    const why =
      kept === exactLength && kept < lengthOld
        ? "where exact cells end"
        : `at the first difference, in ${spanNameOf(wanted, kept)}`;
    return cut === 0
      ? `All ${kept} resident tokens are a prefix of the prompt.`
      : `Reuse is "prefix": it stops after ${kept} tokens, ${why}; ${cut} were cut.`;
  }
  if (kept + relocated === 0) return `None of the ${lengthOld} resident tokens could stay.`;
  const repaired = cut - dropped;
  const survivors = repaired === 1 ? "1 survivor was" : `${repaired} survivors were`;
  const repair = repaired > 0 ? ` ${survivors} recomputed as repair.` : "";
  const position = `token ${front}, in ${spanNameOf(wanted, front)}`;
  if (adopted > 0) {
    return `${adopted} tokens were adopted as they were computed earlier, behind ${position}; ${dropped} resident tokens were cut.${repair}`;
  }
  if (dropped === 0 && relocated === 0)
    return `All ${lengthOld} resident tokens stayed; ${computed - repaired} were appended.${repair}`;
  if (relocated === 0)
    return `Prompt and resident text part at ${position}; ${dropped} resident tokens were cut.${repair}`;
  return `Edited at ${position}: ${dropped} resident tokens were cut and ${relocated} behind them stayed.${repair}`;
}

/** The span that contains a token, in words; spans are counted from 1. */
function spanNameOf(wanted: readonly Span[], token: number): string {
  let end = 0;
  for (const [index, { role, tokens }] of wanted.entries()) {
    end += tokens.length;
    if (token < end) return `span ${index + 1} (${role})`;
  }
  return "the end";
}
