// Token masks that prevent tool calls while the tools stay in the prompt (tool_choice "none"): a side question shares
// the cached prefix of an agent's prompt, which includes the tools, and must be answered in text. The tag of a call
// is masked everywhere. Small models write calls without their tag, so an answer may not begin like one either.
import type { TokenConstraint } from "./grammar.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** First token of a tool call, in templates that have one. */
const opener = "<tool_call>";
/** Beginnings of a bare object, of one in a code fence, and of a tag. */
const callLike = /^[{[`<]/;

/** The masks of one vocabulary. Construction takes a few milliseconds. */
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
    // Control tokens begin with a bracket too; those that end an answer must stay allowed.
    for (const { id, special } of tokenizer.addedTokens) if (special && id !== tagged) allow(this.#first, id);
  }

  /** For one answer. */
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
