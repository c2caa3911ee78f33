// What a session holds once a job has ended, however it ended: the old version, the whole new one with its
// answer, the beginning of it, or the new one without the cells that were never filled. Nobody has to say which:
// the engine tells the tokens, and the first version that has exactly these is the one. Pure.
import { lengthOf, type Span, spanOf, tokensOf, truncate } from "../../text/span.ts";
import type { EditPlan } from "../planner/edit-planner.ts";
import { outside, type Range, within } from "../planner/range.ts";

/** Spans and relocated cells that belong together. */
export interface Content {
  readonly spans: readonly Span[];
  readonly relocated: readonly Range[];
}

export interface Ended {
  readonly before: Content;
  readonly wanted: readonly Span[];
  readonly plan: Pick<EditPlan, "islands" | "relocatedRanges">;
  /** Every token the engine reported, in order. */
  readonly generated: readonly number[];
  /** The edit was refused, or never asked for. */
  readonly refused: boolean;
}

/** Undefined: the cells are none of what they can be. */
export function contentAfter(ended: Ended, resident: Int32Array): Content | undefined {
  const { before, wanted, plan, generated, refused } = ended;
  const answered = truncate(withAnswer(wanted, generated), resident.length);
  const whole = { spans: answered, relocated: within(plan.relocatedRanges, 0, resident.length) };
  const candidates = [whole, withoutUnfilled(wanted, plan, resident.length)];
  const inOrder = refused ? [before, ...candidates] : [...candidates, before];
  return inOrder.find((content) => content && isSame(tokensOf(content.spans), resident));
}

/** The wanted tokens without the cells that were still open: gaps fill front to back, survivors stay. */
function withoutUnfilled(
  wanted: readonly Span[],
  { islands, relocatedRanges }: Ended["plan"],
  length: number,
): Content | undefined {
  const gaps = gapsBetween(islands, lengthOf(wanted));
  let filled = length - islands.reduce((sum, { count }) => sum + count, 0);
  if (filled < 0) return undefined;
  const missing: Range[] = [];
  for (const { start, end } of gaps) {
    const from = Math.min(end, start + filled);
    filled -= from - start;
    if (from < end) missing.push({ start: from, end });
  }
  const missingBefore = (place: number) =>
    within(missing, 0, place).reduce((sum, { start, end }) => sum + end - start, 0);
  const spans = standingSpans(wanted, outsideOf(missing, 0, lengthOf(wanted)));
  // They lie in islands, where nothing is missing.
  const relocated = relocatedRanges.map((range) => {
    const shift = missingBefore(range.start);
    return { start: range.start - shift, end: range.end - shift };
  });
  return { spans, relocated };
}

/** What of the wanted spans stands in `ranges`, in wanted tokens. */
export function standingSpans(wanted: readonly Span[], ranges: readonly Range[]): Span[] {
  let start = 0;
  return wanted.flatMap((span) => {
    const from = start;
    start += span.tokens.length;
    const parts = within(ranges, from, start);
    const count = parts.reduce((sum, part) => sum + part.end - part.start, 0);
    if (count === 0) return [];
    if (count === span.tokens.length) return [span];
    const tokens = new Int32Array(count);
    let at = 0;
    for (const part of parts) {
      tokens.set(span.tokens.subarray(part.start - from, part.end - from), at);
      at += part.end - part.start;
    }
    return [spanOf(span.role, tokens)];
  });
}

/** The parts of [start, end) that none of `ranges` covers. */
function outsideOf(ranges: readonly Range[], start: number, end: number): Range[] {
  return ranges.reduce((left: Range[], range) => outside(left, range.start, range.end), [{ start, end }]);
}

function gapsBetween(islands: EditPlan["islands"], length: number): Range[] {
  const gaps: Range[] = [];
  let end = 0;
  for (const { startNew, count } of [...islands, { startNew: length, count: 0 }]) {
    if (startNew > end) gaps.push({ start: end, end: startNew });
    end = startNew + count;
  }
  return gaps;
}

/** The generation prompt and what was said after it are the assistant's message. */
function withAnswer(spans: readonly Span[], generated: readonly number[]): Span[] {
  const last = spans.at(-1);
  if (!last || generated.length === 0) return [...spans];
  const tokens = new Int32Array(last.tokens.length + generated.length);
  tokens.set(last.tokens);
  tokens.set(generated, last.tokens.length);
  const role = last.role === "template" ? "assistant" : last.role;
  return [...spans.slice(0, -1), spanOf(role, tokens)];
}

function isSame(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && a.every((token, place) => token === b[place]);
}
