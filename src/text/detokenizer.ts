// Token ids to text as they come, for one answer. A character whose bytes are spread over several tokens
// comes out once, with the last of them; until then `push` returns what is certain. It knows neither stop
// strings nor events.
import type { Tokenizer } from "./tokenizer.ts";

export class Detokenizer {
  // A byte order mark is text here: dropping it would make the text differ from its ids.
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(private readonly tokenizer: Tokenizer) {}

  /** The text that this token completes; may be empty. */
  push(id: number): string {
    return this.#utf8.decode(this.tokenizer.bytesOf(id), { stream: true });
  }

  /** What an answer cut inside a character leaves: one U+FFFD, or nothing. The decoder is done after it. */
  flush(): string {
    return this.#utf8.decode();
  }
}
