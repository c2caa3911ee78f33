// Stop strings of one answer. Text comes in pieces of any size; what comes out is the text in front of the
// first match, and never a character of the match itself. Only a suffix that may still become a match is held
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

  #firstMatch(): number | undefined {
    const places = this.#stops.map((stop) => this.#held.indexOf(stop)).filter((place) => place >= 0);
    return places.length > 0 ? Math.min(...places) : undefined;
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
