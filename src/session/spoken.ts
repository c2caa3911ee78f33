// The ids an answer was generated with, by its text. A client sends the text back; encoding it again may give
// other ids, and then the cells of the answer would not be found. Answers are shared between the sessions of one
// tenant: ids of the same text are as good as any others. It is bounded, and losing an entry costs time only.
import { Lru } from "../text/lru.ts";

const answersMax = 4096;
/** Characters of text plus four bytes per id. */
const bytesMax = 32 * 1024 * 1024;

export class Spoken {
  readonly #answers = new Lru<Int32Array>(bytesMax, answersMax);

  get size(): number {
    return this.#answers.size;
  }

  /** `ids` must decode to exactly `text`. */
  record(text: string, ids: readonly number[], tenant?: string): void {
    if (text === "" || ids.length === 0) return;
    this.#answers.set(keyOf(text, tenant), Int32Array.from(ids), text.length * 2 + ids.length * 4);
  }

  idsOf(text: string, tenant?: string): Int32Array | undefined {
    return this.#answers.get(keyOf(text, tenant));
  }
}

/** A length in front of the tenant's name, so that no text can look like another tenant's. */
function keyOf(text: string, tenant: string | undefined): string {
  return tenant === undefined ? `-${text}` : `${tenant.length} ${tenant}${text}`;
}
