// How far a JSON object reaches in text that is still coming. It counts brackets outside strings and nothing
// else: whether what lies between them is JSON is for whoever reads the whole of it.

export class JsonExtent {
  #depth = 0;
  #inString = false;
  #escaped = false;

  /** Brackets open now; 0 before the object and behind it. */
  get depth(): number {
    return this.#depth;
  }

  /**
   * Reads from `at` on and stops behind the bracket that closes down to `depth`. Returns where it stopped, or -1
   * when all of `text` is read and that bracket has not come.
   */
  close(text: string, at: number, depth: number): number {
    for (let place = at; place < text.length; place++) {
      if (this.#read(text[place]!) && this.#depth === depth) return place + 1;
    }
    return -1;
  }

  /** Whether the character closed a bracket. */
  #read(character: string): boolean {
    if (this.#inString) {
      if (this.#escaped) this.#escaped = false;
      else if (character === "\\") this.#escaped = true;
      else if (character === '"') this.#inString = false;
      return false;
    }
    if (character === '"') this.#inString = true;
    else if (character === "{" || character === "[") this.#depth++;
    else if (character === "}" || character === "]") {
      this.#depth--;
      return true;
    }
    return false;
  }
}
