// Stop strings of one answer. Text comes in pieces of any size; what comes out is the text in front of the
// first match, and never a character of the match itself. First is the match that is complete first, the
// longest of those that end together, so that the result does not depend on how the text was broken up. Only a suffix that may still become a match is held
// back. It knows text only: tokens and events are the caller's.

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

  /** The text that is certain now. Once `stopped`, always "". */
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

  /** What was held back, when no more text comes. */
  flush(): string {
    return this.#stopped ? "" : this.#release(this.#held.length, "");
  }

  #release(length: number, held: string): string {
    const released = this.#held.slice(0, length);
    this.#held = held;
    return released;
  }

  /** Where it starts. */
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
