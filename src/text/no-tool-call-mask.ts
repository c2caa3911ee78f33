// Keeps an answer from being a tool call while the tools stay in the prompt: a side question (a summary, say)
// shares the beginning of an agent's prompt, where templates write the tools, and must be answered in words.
// Small models write calls without their tags too, so an answer may not open like one. It is a mask, no grammar.
import type { TokenConstraint } from "./grammar.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** What the tagged form opens with, in the templates that have one. */
const opener = "<tool_call>";
/** A bare object, a fenced one, a tag: no text worth having opens like that. */
const callLike = /^[{[`<]/;

/** The masks of one vocabulary; made once, a few milliseconds. */
export class NoToolCallMask {
  readonly #later: Int32Array;
  readonly #first: Int32Array;

  constructor(private readonly tokenizer: Tokenizer) {
    const words = Math.ceil(tokenizer.size / 32);
    this.#later = new Int32Array(words).fill(-1);
    const tagged = tokenizer.idOf(opener);
    if (tagged !== undefined) forbid(this.#later, tagged);
    this.#first = this.#later.slice();
    for (let id = 0; id < tokenizer.size; id++) {
      if (callLike.test(this.#textOf(id).trimStart())) forbid(this.#first, id);
    }
    // The control tokens that end an answer are spelled with a bracket and stay allowed.
    for (const { id, special } of tokenizer.addedTokens) if (special && id !== tagged) allow(this.#first, id);
  }

  start(): TokenConstraint {
    let opened = false;
    return {
      mask: () => (opened ? this.#later : this.#first),
      accept: (id) => {
        opened ||= this.#textOf(id).trim() !== "";
        return true;
      },
      terminated: false,
      dispose: () => undefined,
    };
  }

  #textOf(id: number): string {
    return Buffer.from(this.tokenizer.bytesOf(id)).toString("latin1");
  }
}

function forbid(mask: Int32Array, id: number): void {
  mask[id >> 5]! &= ~(1 << (id & 31));
}

function allow(mask: Int32Array, id: number): void {
  mask[id >> 5]! |= 1 << (id & 31);
}
