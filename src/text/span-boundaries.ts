// Where one message ends and the next begins in a rendered prompt. Works on atoms: control tokens, and plain
// text between them. The rule: what a template writes between two contents is cut in front of the control
// token that follows an end of turn (`<|im_end|>\n` closes the earlier message, `<|im_start|>user\n` opens the
// next). It encodes nothing.
import type { Piece } from "./placeholders.ts";
import type { Tokenizer } from "./tokenizer.ts";

export type Fragment =
  | { readonly kind: "control"; readonly id: number }
  /** `message` as in Piece. */
  | { readonly kind: "text"; readonly text: string; readonly message: number | undefined };

/** The atoms that belong to one message; `message` is undefined for what the template adds of its own. */
export interface SpanFragments {
  readonly message: number | undefined;
  readonly atoms: readonly Fragment[];
}

/** Portions in order; all atoms of `pieces` are in them, but a text atom may be cut in two. */
export function splitIntoSpans(
  pieces: readonly Piece[],
  messageCount: number,
  tokenizer: Tokenizer,
  stopTokens: ReadonlySet<number>,
  generationPrompt: boolean,
): SpanFragments[] {
  const portions: { message: number | undefined; atoms: Fragment[] }[] = [];
  let last = -1;
  let between: Fragment[] = [];
  const settle = (openings: readonly (number | undefined)[]) => {
    const segments = cut(between, stopTokens, openings.length > 0 && last >= 0);
    const closing = last >= 0 ? segments.shift() : undefined;
    if (closing) portions.at(-1)!.atoms.push(...closing);
    // From the back: the last segment opens the message at hand; a template may add turns of its own in front.
    const offset = openings.length - segments.length;
    for (const [place, atoms] of segments.entries())
      portions.push({ message: openings[place + offset], atoms });
    between = [];
  };
  for (const atom of atomsOf(pieces, tokenizer)) {
    const message = atom.kind === "text" ? atom.message : undefined;
    // A content that comes a second time or out of order opens nothing: it is text inside another message.
    if (message === undefined || message <= last) {
      between.push(atom);
      continue;
    }
    settle(range(last + 1, message + 1));
    if (portions.at(-1)?.message !== message) portions.push({ message, atoms: [] });
    portions.at(-1)!.atoms.push(atom);
    last = message;
  }
  settle([...range(last + 1, messageCount), ...(generationPrompt ? [undefined] : [])]);
  return portions;
}

function atomsOf(pieces: readonly Piece[], tokenizer: Tokenizer): Fragment[] {
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

/** With `must` there are at least two segments, of which the first closes what came before. */
function cut(atoms: readonly Fragment[], stopTokens: ReadonlySet<number>, must: boolean): Fragment[][] {
  const segments: Fragment[][] = [[]];
  for (const [place, atom] of atoms.entries()) {
    if (atom.kind === "control" && !stopTokens.has(atom.id) && followsStop(atoms, place, stopTokens)) {
      segments.push([]);
    }
    segments.at(-1)!.push(atom);
  }
  return segments.length === 1 && must ? cutWithoutTurns(atoms, stopTokens) : segments;
}

function followsStop(atoms: readonly Fragment[], place: number, stopTokens: ReadonlySet<number>): boolean {
  for (let at = place - 1; at >= 0; at--) {
    const atom = atoms[at]!;
    if (atom.kind === "control") return stopTokens.has(atom.id);
    if (atom.text.trim() !== "") return false;
  }
  return false;
}

/**
 * Templates that put several messages into one turn, or know no end of turn: cut behind the line break nearest
 * the middle, since what closes a message and what opens one are about equally long; else in front of the
 * first control token; else all of it opens the next message.
 */
function cutWithoutTurns(atoms: readonly Fragment[], stopTokens: ReadonlySet<number>): Fragment[][] {
  const breaks = lineBreaks(atoms);
  if (breaks.length > 0) {
    const total = atoms.reduce((sum, atom) => sum + lengthOf(atom), 0);
    const off = (offset: number) => Math.abs(offset - total / 2);
    const nearest = breaks.reduce((best, next) => (off(next.offset) < off(best.offset) ? next : best));
    const atom = atoms[nearest.place] as Fragment & { kind: "text" };
    const front = { ...atom, text: atom.text.slice(0, nearest.at) };
    const back = { ...atom, text: atom.text.slice(nearest.at) };
    return [
      [...atoms.slice(0, nearest.place), front],
      [...(back.text === "" ? [] : [back]), ...atoms.slice(nearest.place + 1)],
    ];
  }
  const place = atoms.findIndex((atom) => atom.kind === "control" && !stopTokens.has(atom.id));
  return place < 0 ? [[], [...atoms]] : [atoms.slice(0, place), atoms.slice(place)];
}

interface LineBreak {
  /** Atom and place in its text, behind the break; and the same in characters from the first atom. */
  readonly place: number;
  readonly at: number;
  readonly offset: number;
}

function lineBreaks(atoms: readonly Fragment[]): LineBreak[] {
  const breaks: LineBreak[] = [];
  let offset = 0;
  for (const [place, atom] of atoms.entries()) {
    if (atom.kind === "text") {
      for (const { index } of atom.text.matchAll(/\n/g)) {
        breaks.push({ place, at: index + 1, offset: offset + index + 1 });
      }
    }
    offset += lengthOf(atom);
  }
  return breaks;
}

function lengthOf(atom: Fragment): number {
  return atom.kind === "text" ? atom.text.length : 1;
}

function range(start: number, end: number): number[] {
  return Array.from({ length: Math.max(0, end - start) }, (_, index) => start + index);
}
