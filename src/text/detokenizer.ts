// Streaming detokenizer for one answer. A character whose bytes are spread over several tokens is returned with the
// last of them.
import type { Tokenizer } from "./tokenizer.ts";

export class Detokenizer {
  // Keeps a byte order mark: without it the text would differ from its ids.
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

  constructor(private readonly tokenizer: Tokenizer) {}

  /** The text that this token completes; may be empty. */
  push(id: number): string {
    return this.#utf8.decode(this.tokenizer.bytesOf(id), { stream: true });
  }

  /** Call once at the end: one U+FFFD if the answer ends inside a character, otherwise "". */
  flush(): string {
    return this.#utf8.decode();
  }
}
