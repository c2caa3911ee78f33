// Decides which relocated cells are recomputed, during an edit or while the server is idle. A repair cuts a range and
// inserts the same tokens again; within an edit it is enough to remove the range from the reused ranges. Assistant
// messages come first because recomputing them restores most of the output per token. Pure functions.
import type { Repair } from "../../chat/chat.ts";
import type { Span } from "../../text/span.ts";
import { countOf, type Range, within } from "./range.ts";
import { type ReusedRange, without } from "./reused-range.ts";

/** `reused` without the cells that `repair` recomputes. `relocated` is in wanted tokens; no other cell is touched. */
export function withoutRepaired(
  reused: readonly ReusedRange[],
  relocated: readonly Range[],
  wanted: readonly Span[],
  repair: Repair,
): readonly ReusedRange[] {
  if (repair === "none" || relocated.length === 0) return reused;
  return rangesOf(relocated, wanted, repair).reduce(
    (left: readonly ReusedRange[], { start, end }) => without(left, start, end),
    reused,
  );
}

/**
 * The next cells of an idle session to recompute, at most `maxTokens`; undefined: the session is exact. Relocated
 * cells of assistant messages come first. Then front to back from the exact length on; this recomputes the assistant
 * messages once more, because their first repair attended to stale cells.
 */
export function nextRepair(
  { spans, relocated, exactLength }: Repairable,
  length: number,
  maxTokens: number,
): Range | undefined {
  const stale = within(relocated, exactLength, length);
  const first = assistantRanges(stale, spans)[0];
  const start = first ? first.start : exactLength;
  const end = Math.min(first ? first.end : length, start + maxTokens);
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

/** Assistant messages with at least one relocated token, clipped to the relocated tokens. */
function assistantRanges(relocated: readonly Range[], wanted: readonly Span[]): Range[] {
  const ranges: Range[] = [];
  let start = 0;
  for (const { role, tokens } of wanted) {
    const end = start + tokens.length;
    const parts = role === "assistant" ? within(relocated, start, end) : [];
    const last = parts.at(-1);
    // One range per message, so that "first-assistant" recomputes a whole message.
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
