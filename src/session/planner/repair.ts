// Which relocated cells are computed again, at once or while nobody asks. A repair is an identity splice: the
// range is cut and the same tokens go there. Within an edit it is enough to take the range out of the islands.
// Assistant messages first is what was measured to help most per token (design §9). Pure.
import type { Repair } from "../../chat/chat.ts";
import type { Span } from "../../text/span.ts";
import { countOf, type Range, within } from "./range.ts";
import { type ReusedRange, without } from "./reused-range.ts";

/** `relocated` as in range.ts, in wanted tokens; no other cell is touched. */
export function repairIslands(
  islands: readonly ReusedRange[],
  relocated: readonly Range[],
  wanted: readonly Span[],
  repair: Repair,
): readonly ReusedRange[] {
  if (repair === "none" || relocated.length === 0) return islands;
  return rangesOf(relocated, wanted, repair).reduce(
    (left: readonly ReusedRange[], { start, end }) => without(left, start, end),
    islands,
  );
}

/**
 * What an idle session has recomputed next, at most `most` cells; undefined: it is exact. First what is
 * relocated of assistant messages, since that brings most of the likeness back; then front to back from where
 * exact cells end, those messages once more, because their first repair looked at stale neighbours.
 */
export function nextRepair(
  { spans, relocated, exactLength }: Repairable,
  length: number,
  most: number,
): Range | undefined {
  const stale = within(relocated, exactLength, length);
  const first = assistantRanges(stale, spans)[0];
  const start = first ? first.start : exactLength;
  const end = Math.min(first ? first.end : length, start + most);
  return start < end ? { start, end } : undefined;
}

interface Repairable {
  readonly spans: readonly Span[];
  readonly relocated: readonly Range[];
  readonly exactLength: number;
}

function rangesOf(relocated: readonly Range[], wanted: readonly Span[], repair: Repair): Range[] {
  switch (repair) {
    case "none":
      return [];
    case "assistant":
      return assistantRanges(relocated, wanted);
    case "first-assistant":
      return assistantRanges(relocated, wanted).slice(0, 1);
    case "assistant+256":
      return [...assistantRanges(relocated, wanted), ...firstTokens(relocated, 256)];
    default:
      return firstTokens(relocated, repair < 1 ? Math.ceil(repair * countOf(relocated)) : repair);
  }
}

/** Messages of the assistant with at least one relocated token, clipped to relocated tokens. */
function assistantRanges(relocated: readonly Range[], wanted: readonly Span[]): Range[] {
  const ranges: Range[] = [];
  let start = 0;
  for (const { role, tokens } of wanted) {
    const end = start + tokens.length;
    const parts = role === "assistant" ? within(relocated, start, end) : [];
    const last = parts.at(-1);
    // One range per message, so that "the first assistant message" is a whole one.
    if (last) ranges.push({ start: parts[0]!.start, end: last.end });
    start = end;
  }
  return ranges;
}

function firstTokens(relocated: readonly Range[], count: number): Range[] {
  const ranges: Range[] = [];
  let left = Math.floor(count);
  for (const { start, end } of relocated) {
    const taken = Math.min(left, end - start);
    if (taken <= 0) break;
    ranges.push({ start, end: start + taken });
    left -= taken;
  }
  return ranges;
}
