// Placeholders for text of messages and tools in a chat template. A template returns one string; to know which of its
// characters came from a message, the template gets a unique word in place of the text, and the text is put back into
// the rendering. One instance serves one rendering.
import { randomBytes } from "node:crypto";

/** A part of a rendered prompt. */
export interface Piece {
  /** "content": text of a message or a tool; it is encoded without control tokens. */
  readonly kind: "template" | "content";
  readonly text: string;
  /** Index of the message whose whole content this is; undefined for anything else. */
  readonly message: number | undefined;
}

export class Placeholders {
  // ASCII letters and digits only, which JSON and HTML escaping do not change; too long to be guessed.
  readonly #nonce = `Q${randomBytes(12).toString("hex")}`;
  readonly #pieces: Piece[] = [];
  readonly #pattern = new RegExp(`${this.#nonce}n(\\d+)z`, "g");

  /** The placeholder for a text; `message`: index of the message whose whole content it is. */
  put(text: string, message: number | undefined): string {
    this.#pieces.push({ kind: "content", text, message });
    return `${this.#nonce}n${this.#pieces.length - 1}z`;
  }

  /** `text` with every match of `literals` replaced by a placeholder. */
  shield(text: string, literals: RegExp | undefined): string {
    return literals ? text.replace(literals, (literal) => this.put(literal, undefined)) : text;
  }

  /** Cuts a rendering, or a part of one, at its placeholders. */
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

  /** The rendering with every placeholder replaced by its text. */
  restore(rendered: string): string {
    return rendered.replace(this.#pattern, (_, index: string) => this.#pieces[Number(index)]!.text);
  }
}

function templatePiece(text: string): Piece {
  return { kind: "template", text, message: undefined };
}
