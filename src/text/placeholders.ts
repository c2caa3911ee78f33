// Stand-ins that follow foreign text through a chat template. A template returns one string; to know which of
// its characters came from a message, the text goes in as a unique word and is put back afterwards. One set
// of marks serves one rendering.
import { randomBytes } from "node:crypto";

/** A stretch of a rendered prompt. */
export interface Piece {
  /** "content" came from a message or a tool: it is encoded without control tokens. */
  readonly kind: "template" | "content";
  readonly text: string;
  /** The message whose whole content this is; undefined for anything else. */
  readonly message: number | undefined;
}

export class Placeholders {
  // ASCII letters and digits only, so that JSON and HTML escaping leave a mark alone; too long to be guessed.
  readonly #nonce = `Q${randomBytes(12).toString("hex")}`;
  readonly #pieces: Piece[] = [];
  readonly #pattern = new RegExp(`${this.#nonce}n(\\d+)z`, "g");

  /** A word for a content piece; `message` where it is that message's whole content. */
  put(text: string, message: number | undefined): string {
    this.#pieces.push({ kind: "content", text, message });
    return `${this.#nonce}n${this.#pieces.length - 1}z`;
  }

  /** The text with every one of `literals` in it replaced by a mark. */
  shield(text: string, literals: RegExp | undefined): string {
    return literals ? text.replace(literals, (literal) => this.put(literal, undefined)) : text;
  }

  /** Cuts a rendering, or a part of one, at its marks. */
  split(rendered: string): Piece[] {
    const pieces: Piece[] = [];
    let at = 0;
    for (const match of rendered.matchAll(this.#pattern)) {
      if (match.index > at) pieces.push(templatePiece(rendered.slice(at, match.index)));
      pieces.push(this.#pieces[Number(match[1])]!);
      at = match.index + match[0].length;
    }
    if (at < rendered.length) pieces.push(templatePiece(rendered.slice(at)));
    return pieces;
  }

  /** The rendering with every mark replaced by its text. */
  restore(rendered: string): string {
    return rendered.replace(this.#pattern, (_, index: string) => this.#pieces[Number(index)]!.text);
  }
}

export function templatePiece(text: string): Piece {
  return { kind: "template", text, message: undefined };
}
