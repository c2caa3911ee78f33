// Stop strings of one answer. It returns the streamed text up to the first match, without the match, and holds back
// only a suffix that may become a match. The first match is the one that is complete first, the longest of those that
// end together: so the result does not depend on how the text is split into chunks.

export class StopStrings {
  readonly #stops: readonly string[];
  #held = "";
  #stopped = false;

  /** Empty strings are ignored. */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== "");
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  /** The text that can no longer be part of a match. Once `stopped`: "". */
  push(text: string): string {
    if (this.#stopped) return "";
    this.#held += text;
    const cut = this.#firstMatch();
    if (cut !== undefined) {
      this.#stopped = true;
      return this.#release(cut, "");
    }
    const keep = this.#heldLength();
    return this.#release(this.#held.length - keep, this.#held.slice(this.#held.length - keep));
  }

  /** Call at the end of the text: returns what was held back. */
  flush(): string {
    return this.#stopped ? "" : this.#release(this.#held.length, "");
  }

  #release(length: number, held: string): string {
    const released = this.#held.slice(0, length);
    this.#held = held;
    return released;
  }

  /** Index of its first character. */
  #firstMatch(): number | undefined {
    const matches = this.#stops
      .map((stop) => ({ start: this.#held.indexOf(stop), length: stop.length }))
      .filter(({ start }) => start >= 0)
      .sort((a, b) => a.start + a.length - (b.start + b.length) || a.start - b.start);
    return matches[0]?.start;
  }

  /** Length of the longest suffix that is a proper prefix of some stop. */
  #heldLength(): number {
    let longest = 0;
    for (const stop of this.#stops) {
      for (let length = Math.min(stop.length - 1, this.#held.length); length > longest; length--) {
        if (this.#held.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}
