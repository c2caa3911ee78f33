// Finds the boundaries between messages in a rendered prompt. It works on fragments: control tokens, and the plain text
// between them. What a template writes between two contents is cut in front of the control token that follows an end
// of turn: `<|im_end|>\n` closes the earlier message, `<|im_start|>user\n` opens the next.
import type { Piece } from "./placeholders.ts";
import type { Tokenizer } from "./tokenizer.ts";

export type Fragment =
  | { readonly kind: "control"; readonly id: number }
  /** `message` as in Piece. */
  | { readonly kind: "text"; readonly text: string; readonly message: number | undefined };

/** The fragments of one message, by its index; `message` undefined: text that the template adds. */
export interface SpanFragments {
  readonly message: number | undefined;
  readonly fragments: readonly Fragment[];
}

/** In order. Every fragment of `pieces` is in one of them; a text fragment may be cut in two. */
export function splitIntoSpans(
  pieces: readonly Piece[],
  messageCount: number,
  tokenizer: Tokenizer,
  stopTokens: ReadonlySet<number>,
  generationPrompt: boolean,
): SpanFragments[] {
  const spans: { message: number | undefined; fragments: Fragment[] }[] = [];
  let last = -1;
  let between: Fragment[] = [];
  const settle = (openings: readonly (number | undefined)[]) => {
    const segments = cut(between, stopTokens, openings.length > 0 && last >= 0);
    const closing = last >= 0 ? segments.shift() : undefined;
    if (closing) spans.at(-1)!.fragments.push(...closing);
    // Aligned at the end: the last segment opens the next message; a template may add turns in front of it.
    const offset = openings.length - segments.length;
    for (const [index, fragments] of segments.entries())
      spans.push({ message: openings[index + offset], fragments });
    between = [];
  };
  for (const fragment of fragmentsOf(pieces, tokenizer)) {
    const message = fragment.kind === "text" ? fragment.message : undefined;
    // Content that occurs twice or out of order opens no message: it is text inside another one.
    if (message === undefined || message <= last) {
      between.push(fragment);
      continue;
    }
    settle(range(last + 1, message + 1));
    if (spans.at(-1)?.message !== message) spans.push({ message, fragments: [] });
    spans.at(-1)!.fragments.push(fragment);
    last = message;
  }
  settle([...range(last + 1, messageCount), ...(generationPrompt ? [undefined] : [])]);
  return spans;
}

function fragmentsOf(pieces: readonly Piece[], tokenizer: Tokenizer): Fragment[] {
  return pieces.flatMap(({ kind, text, message }): Fragment[] => {
    if (kind === "content") return [{ kind: "text", text, message }];
    return tokenizer
      .sections(text)
      .map((section) =>
        typeof section === "number"
          ? { kind: "control", id: section }
          : { kind: "text", text: section, message: undefined },
      );
  });
}

/** With `must` there are at least two segments, and the first closes the previous message. */
function cut(fragments: readonly Fragment[], stopTokens: ReadonlySet<number>, must: boolean): Fragment[][] {
  const segments: Fragment[][] = [[]];
  for (const [index, fragment] of fragments.entries()) {
    if (
      fragment.kind === "control" &&
      !stopTokens.has(fragment.id) &&
      followsStop(fragments, index, stopTokens)
    ) {
      segments.push([]);
    }
    segments.at(-1)!.push(fragment);
  }
  return segments.length === 1 && must ? cutWithoutTurns(fragments, stopTokens) : segments;
}

function followsStop(
  fragments: readonly Fragment[],
  index: number,
  stopTokens: ReadonlySet<number>,
): boolean {
  for (let at = index - 1; at >= 0; at--) {
    const fragment = fragments[at]!;
    if (fragment.kind === "control") return stopTokens.has(fragment.id);
    if (fragment.text.trim() !== "") return false;
  }
  return false;
}

/**
 * For templates that put several messages into one turn or have no end of turn: cuts behind the line break nearest the
 * middle, since the closing and the opening text are about equally long; without a line break in front of the first
 * control token; without either, everything opens the next message.
 */
function cutWithoutTurns(fragments: readonly Fragment[], stopTokens: ReadonlySet<number>): Fragment[][] {
  const breaks = lineBreaks(fragments);
  if (breaks.length > 0) {
    const total = fragments.reduce((sum, fragment) => sum + lengthOf(fragment), 0);
    const distance = (offset: number) => Math.abs(offset - total / 2);
    const nearest = breaks.reduce((best, next) =>
      distance(next.offset) < distance(best.offset) ? next : best,
    );
    const fragment = fragments[nearest.index] as Fragment & { kind: "text" };
    const front = { ...fragment, text: fragment.text.slice(0, nearest.at) };
    const back = { ...fragment, text: fragment.text.slice(nearest.at) };
    return [
      [...fragments.slice(0, nearest.index), front],
      [...(back.text === "" ? [] : [back]), ...fragments.slice(nearest.index + 1)],
    ];
  }
  const index = fragments.findIndex(
    (fragment) => fragment.kind === "control" && !stopTokens.has(fragment.id),
  );
  return index < 0 ? [[], [...fragments]] : [fragments.slice(0, index), fragments.slice(index)];
}

interface LineBreak {
  /** Index of the fragment. */
  readonly index: number;
  /** Offset behind the break in the fragment's text. */
  readonly at: number;
  /** The same from the first fragment on; a control token counts as one character. */
  readonly offset: number;
}

function lineBreaks(fragments: readonly Fragment[]): LineBreak[] {
  const breaks: LineBreak[] = [];
  let offset = 0;
  for (const [index, fragment] of fragments.entries()) {
    if (fragment.kind === "text") {
      for (const match of fragment.text.matchAll(/\n/g)) {
        breaks.push({ index, at: match.index + 1, offset: offset + match.index + 1 });
      }
    }
    offset += lengthOf(fragment);
  }
  return breaks;
}

function lengthOf(fragment: Fragment): number {
  return fragment.kind === "text" ? fragment.text.length : 1;
}

function range(start: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - start) }, (_, index) => start + index);
}
