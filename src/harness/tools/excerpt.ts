// Text that is too long for a tool's result, cut to its beginning and its end with a line that says so. Counted in
// characters, because no tool knows the model's tokens.

/** At most `most` characters and the line in between; cut between characters, never inside one. */
export function excerpt(text: string, most: number): string {
  if (text.length <= most) return text;
  const half = Math.floor(most / 2);
  return joined(text.slice(0, half), text.length - 2 * half, text.slice(text.length - half));
}

/** Text that comes in pieces of any size, of which the beginning and the end are kept. */
export class Excerpt {
  #head = "";
  #tail = "";
  #length = 0;

  constructor(private readonly most: number) {}

  push(text: string): void {
    this.#length += text.length;
    const half = Math.floor(this.most / 2);
    const room = half - this.#head.length;
    this.#head += text.slice(0, room);
    this.#tail = (this.#tail + text.slice(Math.max(0, room))).slice(-half);
  }

  get text(): string {
    const left = this.#length - this.#head.length - this.#tail.length;
    return left <= 0 ? this.#head + this.#tail : joined(this.#head, left, this.#tail);
  }
}

function joined(head: string, left: number, tail: string): string {
  // Half of a surrogate pair at either cut is dropped.
  const start = head.replace(/[\uD800-\uDBFF]$/, "");
  const end = tail.replace(/^[\uDC00-\uDFFF]/, "");
  return `${start}\n… ${left} characters left out …\n${end}`;
}
