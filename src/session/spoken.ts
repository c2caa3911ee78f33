// The ids an answer was generated with, by its text. A client sends the text back; encoding it again may give
// other ids, and then the cells of the answer would not be found. Answers are shared between sessions: ids of
// the same text are as good as any others. It is bounded, and losing an entry costs time only.
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
  record(text: string, ids: readonly number[]): void {
    if (text === "" || ids.length === 0) return;
    this.#answers.set(text, Int32Array.from(ids), text.length * 2 + ids.length * 4);
  }

  idsOf(text: string): Int32Array | undefined {
    return this.#answers.get(text);
  }
}
