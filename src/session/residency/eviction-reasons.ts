// Why a session that a client names is not here any more, for the sentence on its next bill. Bounded; a name that
// is forgotten costs a sentence.
const gravesMax = 1000;

export class EvictionReasons {
  readonly #reasons = new Map<string, string>();

  /** `why` follows the session's name, as in "had gone to make room". */
  set(key: string, why: string): void {
    this.#reasons.delete(key);
    this.#reasons.set(key, why);
    const [oldest] = this.#reasons.keys();
    if (this.#reasons.size > gravesMax && oldest !== undefined) this.#reasons.delete(oldest);
  }

  /** Told once. */
  take(key: string): string | undefined {
    const why = this.#reasons.get(key);
    this.#reasons.delete(key);
    return why;
  }
}
