// Determines what a session holds after a job ended, failed or was aborted. The sequence holds the old version, the
// new version with its answer, the beginning of it, or the new version without the cells that were never filled. The
// engine reports the resident tokens; the first candidate with exactly these tokens is right. Pure functions.
import { lengthOf, type Span, spanOf, tokensOf, truncate } from "../../text/span.ts";
import type { EditPlan } from "../planner/edit-planner.ts";
import { countOf, outside, type Range, within } from "../planner/range.ts";
import { reusedTokens } from "../planner/reused-range.ts";

/** Spans, and which of their cells are relocated. */
export interface Content {
  readonly spans: readonly Span[];
  readonly relocated: readonly Range[];
}

export interface EndedJob {
  readonly before: Content;
  readonly wanted: readonly Span[];
  readonly plan: Pick<EditPlan, "reused" | "relocatedRanges">;
  /** Every token the engine reported, in order. */
  readonly generated: readonly number[];
  /** The edit was refused, or never requested. */
  readonly refused: boolean;
}

/** Undefined: the resident tokens match no candidate. */
export function contentAfter(job: EndedJob, resident: Int32Array): Content | undefined {
  const { before, wanted, plan, generated, refused } = job;
  const answered = truncate(withAnswer(wanted, generated), resident.length);
  const whole = { spans: answered, relocated: within(plan.relocatedRanges, 0, resident.length) };
  const candidates = [whole, withoutUnfilled(wanted, plan, resident.length)];
  const inOrder = refused ? [before, ...candidates] : [...candidates, before];
  return inOrder.find((content) => content && isSame(tokensOf(content.spans), resident));
}

/** The wanted tokens without the cells that were not filled. Gaps are filled front to back; survivors stay. */
function withoutUnfilled(
  wanted: readonly Span[],
  { reused, relocatedRanges }: EndedJob["plan"],
  length: number,
): Content | undefined {
  let filled = length - reusedTokens(reused);
  if (filled < 0) return undefined;
  const missing: Range[] = [];
  for (const { start, end } of gapsBetween(reused, lengthOf(wanted))) {
    const from = Math.min(end, start + filled);
    filled -= from - start;
    if (from < end) missing.push({ start: from, end });
  }
  const spans = spansWithin(wanted, outsideOf(missing, 0, lengthOf(wanted)));
  // Relocated ranges lie in reused ranges, where nothing is missing.
  const relocated = relocatedRanges.map((range) => {
    const shift = countOf(within(missing, 0, range.start));
    return { start: range.start - shift, end: range.end - shift };
  });
  return { spans, relocated };
}

/** The parts of the spans inside `ranges`, which count tokens. */
export function spansWithin(spans: readonly Span[], ranges: readonly Range[]): Span[] {
  let end = 0;
  return spans.flatMap((span) => {
    const start = end;
    end += span.tokens.length;
    const parts = within(ranges, start, end);
    const count = countOf(parts);
    if (count === 0) return [];
    if (count === span.tokens.length) return [span];
    const tokens = new Int32Array(count);
    let at = 0;
    for (const part of parts) {
      tokens.set(span.tokens.subarray(part.start - start, part.end - start), at);
      at += part.end - part.start;
    }
    return [spanOf(span.role, tokens)];
  });
}

/** The parts of [start, end) that none of `ranges` covers. */
function outsideOf(ranges: readonly Range[], start: number, end: number): Range[] {
  return ranges.reduce((left: Range[], range) => outside(left, range.start, range.end), [{ start, end }]);
}

function gapsBetween(reused: EditPlan["reused"], length: number): Range[] {
  return outsideOf(
    reused.map(({ startNew, count }) => ({ start: startNew, end: startNew + count })),
    0,
    length,
  );
}

/** The spans with the generated tokens appended to the last one: generation prompt and answer are one message. */
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
  return a.length === b.length && a.every((token, index) => token === b[index]);
}
