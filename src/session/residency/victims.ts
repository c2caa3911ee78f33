// What an edit takes out of a conversation and may be asked for again: whole spans that the next prompt does not
// have, such as the messages behind a summary. Their cells are kept apart from the session's, so that an expand
// finds them after any number of later edits. It says which; who keeps them, and how long, is residents.ts's.
// Not the archive: that keeps messages, for ever; remains are cells, and the first thing that goes.
import { lengthOf, type Span } from "../../text/span.ts";
import type { Range } from "../planner/range.ts";
import { minAdopted } from "../planner/reuse-planner.ts";

export interface VictimSpans {
  readonly spans: readonly Span[];
  /** Cells of the resident version that they stand in. */
  readonly ranges: readonly Range[];
}

/**
 * The last message of a prompt and the answer to it: agents put a trailer there (a catalog, a reminder) that is
 * another one every time, so that its going says nothing.
 */
const trailing = 2;

/** Tokens of the spans that go, trailing ones aside. */
export function removedTokens(resident: readonly Span[], wanted: readonly Span[]): number {
  const stay = new Set(wanted.map(({ key }) => key));
  return lengthOf(resident.slice(0, -trailing).filter(({ key }) => !stay.has(key)));
}

/** The spans that go, trailing ones aside, in runs long enough to be adopted one day. */
export function victimSpans(
  resident: readonly Span[],
  wanted: readonly Span[],
  isHeld: (key: string) => boolean,
): VictimSpans {
  const stay = new Set(wanted.map(({ key }) => key));
  const spans: Span[] = [];
  const ranges: Range[] = [];
  let run: Span[] = [];
  let end = 0;
  let start = 0;
  const close = () => {
    if (end - start >= minAdopted) {
      spans.push(...run);
      ranges.push({ start, end });
    }
    run = [];
  };
  for (const span of resident.slice(0, -trailing)) {
    if (stay.has(span.key) || isHeld(span.key)) {
      close();
      end += span.tokens.length;
      start = end;
    } else {
      run.push(span);
      end += span.tokens.length;
    }
  }
  close();
  return { spans, ranges };
}
