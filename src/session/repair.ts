// Which survivors of an edit are computed again at once, though their cells could stay. A repair is an identity
// splice: the range is cut and the same tokens go there. Here it is enough to take the range out of the
// islands. Assistant messages first is what was measured to help most per token (design §9). Pure.
import type { Repair } from "../context/chat.ts";
import type { Span } from "../text/span.ts";
import { clip, type Island, isKept, without } from "./island.ts";

/** `islands` as in island.ts; kept cells are never touched, only relocated ones. */
export function repairIslands(
  islands: readonly Island[],
  wanted: readonly Span[],
  repair: Repair,
): readonly Island[] {
  const relocated = islands.filter((island) => !isKept(island));
  if (repair === "none" || relocated.length === 0) return islands;
  return rangesOf(relocated, wanted, repair).reduce(
    (left: readonly Island[], { start, end }) => without(left, start, end),
    islands,
  );
}

/** In wanted tokens. */
interface Range {
  readonly start: number;
  readonly end: number;
}

function rangesOf(relocated: readonly Island[], wanted: readonly Span[], repair: Repair): Range[] {
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
      return firstTokens(relocated, repair < 1 ? Math.ceil(repair * total(relocated)) : repair);
  }
}

/** Messages of the assistant with at least one relocated token, clipped to relocated tokens. */
function assistantRanges(relocated: readonly Island[], wanted: readonly Span[]): Range[] {
  const ranges: Range[] = [];
  let start = 0;
  for (const { role, tokens } of wanted) {
    const end = start + tokens.length;
    const parts = role === "assistant" ? relocated.flatMap((island) => clip(island, start, end)) : [];
    const last = parts.at(-1);
    // One range per message, so that "the first assistant message" is a whole one.
    if (last) ranges.push({ start: parts[0]!.startNew, end: last.startNew + last.count });
    start = end;
  }
  return ranges;
}

function firstTokens(relocated: readonly Island[], count: number): Range[] {
  const ranges: Range[] = [];
  let left = Math.floor(count);
  for (const island of relocated) {
    const taken = Math.min(left, island.count);
    if (taken <= 0) break;
    ranges.push({ start: island.startNew, end: island.startNew + taken });
    left -= taken;
  }
  return ranges;
}

function total(islands: readonly Island[]): number {
  return islands.reduce((sum, { count }) => sum + count, 0);
}
