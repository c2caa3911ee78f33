// Cuts a text that is too long for a tool's result to its beginning and its end, with a line in between that
// says so. Limits are in characters (UTF-16 code units), because tools do not know the model's tokens.

/** At most `maxCharacters` and the line in between. Never cuts inside a surrogate pair. */
export function excerpt(text: string, maxCharacters: number): string {
  if (text.length <= maxCharacters) return text;
  const half = Math.floor(maxCharacters / 2);
  return joined(text.slice(0, half), text.length - 2 * half, text.slice(text.length - half));
}

/** The same for a text that arrives in pieces of any size. Memory is bounded by the limit. */
export class Excerpt {
  #head = "";
  #tail = "";
  #length = 0;

  constructor(private readonly maxCharacters: number) {}

  push(text: string): void {
    this.#length += text.length;
    const half = Math.floor(this.maxCharacters / 2);
    const headLeft = half - this.#head.length;
    this.#head += text.slice(0, headLeft);
    this.#tail = (this.#tail + text.slice(Math.max(0, headLeft))).slice(-half);
  }

  get text(): string {
    const omitted = this.#length - this.#head.length - this.#tail.length;
    return omitted <= 0 ? this.#head + this.#tail : joined(this.#head, omitted, this.#tail);
  }
}

function joined(head: string, omitted: number, tail: string): string {
  // Drop half of a surrogate pair at either cut.
  const start = head.replace(/[\uD800-\uDBFF]$/, "");
  const end = tail.replace(/^[\uDC00-\uDFFF]/, "");
  return `${start}\n… ${omitted} characters left out …\n${end}`;
}
