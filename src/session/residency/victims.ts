// Selects the victims of an edit: whole spans that the next prompt does not have, such as the messages behind a
// summary. Their cells are kept apart from the session, so that an expand finds them after any number of later edits.
// This file selects them; residents.ts keeps them. The archive is something else: it keeps messages, permanently.
import { lengthOf, type Span } from "../../text/span.ts";
import type { Range } from "../planner/range.ts";
import { minAdopted } from "../planner/reuse-planner.ts";

export interface VictimSpans {
  readonly spans: readonly Span[];
  /** Their cells in the resident version. */
  readonly ranges: readonly Range[];
}

/**
 * The last message of a prompt and its answer are not considered. Agents put a trailer there (a catalog, a reminder)
 * that differs in every request, so its removal is not an edit of the conversation.
 */
const trailingSpans = 2;

/** Tokens of the removed spans, trailing spans not counted. */
export function removedTokens(resident: readonly Span[], wanted: readonly Span[]): number {
  const wantedKeys = new Set(wanted.map(({ key }) => key));
  return lengthOf(resident.slice(0, -trailingSpans).filter(({ key }) => !wantedKeys.has(key)));
}

/** The removed spans, in runs that are long enough to be adopted later. */
export function victimSpans(
  resident: readonly Span[],
  wanted: readonly Span[],
  isCached: (key: string) => boolean,
): VictimSpans {
  const wantedKeys = new Set(wanted.map(({ key }) => key));
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
  for (const span of resident.slice(0, -trailingSpans)) {
    if (wantedKeys.has(span.key) || isCached(span.key)) {
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
