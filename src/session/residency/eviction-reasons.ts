// Why a named session is no longer resident, for the reason text of the next request that names it. Bounded: a
// forgotten entry only loses a sentence.
const maxReasons = 1000;

export class EvictionReasons {
  readonly #reasons = new Map<string, string>();

  /** `reason` follows the session's name in a sentence, as in "had gone to make room". */
  set(key: string, reason: string): void {
    this.#reasons.delete(key);
    this.#reasons.set(key, reason);
    const [oldest] = this.#reasons.keys();
    if (this.#reasons.size > maxReasons && oldest !== undefined) this.#reasons.delete(oldest);
  }

  /** Returns the reason once. */
  take(key: string): string | undefined {
    const reason = this.#reasons.get(key);
    this.#reasons.delete(key);
    return reason;
  }
}
