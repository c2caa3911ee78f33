// Finds the end of a JSON object in streamed text. It counts brackets outside strings; it does not check that the text
// between them is JSON.

export class JsonExtent {
  #depth = 0;
  #inString = false;
  #escaped = false;

  /** Number of open brackets; 0 before and after the object. */
  get depth(): number {
    return this.#depth;
  }

  /**
   * Reads `text` from index `at` on. Returns the index behind the bracket that closes down to `depth`, or -1 if the
   * text ends before it.
   */
  close(text: string, at: number, depth: number): number {
    for (let index = at; index < text.length; index++) {
      if (this.#read(text[index]!) && this.#depth === depth) return index + 1;
    }
    return -1;
  }

  /** True if the character closes a bracket. */
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
