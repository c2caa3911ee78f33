// The ordered blocks of a conversation after its instructions. Assigns ids and sums tokens. It neither
// archives nor stores: Conversation does both before it changes the history. It does not know which blocks
// are protected.

import type { Message } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";
import { type Block, type BlockId, blockId, type CountTokens, messagesOf, tokensOf } from "./block.ts";

export interface HistoryOptions {
  /** Usually one system message. They are no block, so they are never compacted. */
  readonly instructions: readonly Message[];
  readonly count: CountTokens;
  /** Blocks of a resumed conversation, in order. Default: none. */
  readonly blocks?: readonly Block[];
  /** Number of ids assigned so far in each series, including those of archived blocks. Default: 0. */
  readonly used?: { readonly b: number; readonly r: number };
}

/** The blocks that the agent sees. Change it only through Conversation. */
export class History {
  readonly instructions: readonly Message[];
  readonly count: CountTokens;
  readonly #instructionTokens: number;
  readonly #used: { b: number; r: number };
  #blocks: readonly Block[];

  constructor({ instructions, count, blocks = [], used = { b: 0, r: 0 } }: HistoryOptions) {
    this.instructions = instructions;
    this.count = count;
    this.#instructionTokens = tokensOf(instructions, count);
    this.#used = { ...used };
    this.#blocks = blocks;
  }

  /** In order. The array is never changed; each change of the history makes a new one. */
  get blocks(): readonly Block[] {
    return this.#blocks;
  }

  /** Tokens of the instructions and all blocks. */
  get tokens(): number {
    return this.#blocks.reduce((sum, { tokens }) => sum + tokens, this.#instructionTokens);
  }

  /** The instructions, then the messages of the blocks [0, end). Default: all blocks. */
  messages(end = this.#blocks.length): Message[] {
    return [...this.instructions, ...this.#blocks.slice(0, end).flatMap((block) => messagesOf(block))];
  }

  /** Index of a block in the history; -1 if it is not in it. */
  indexOf(id: BlockId): number {
    return this.#blocks.findIndex((block) => block.id === id);
  }

  /** @deprecated Use indexOf. */
  placeOf(id: BlockId): number {
    return this.indexOf(id);
  }

  /** The next ids of a series. They are assigned by `append` and `replace`. */
  nextIds(series: "b" | "r", count: number): BlockId[] {
    return Array.from({ length: count }, (_, offset) => blockId(series, this.#used[series] + 1 + offset));
  }

  /** Throws BAD_ARGUMENT if an id is not the next of its series. */
  append(...blocks: readonly Block[]): void {
    this.#assignIds(blocks);
    this.#blocks = [...this.#blocks, ...blocks];
  }

  /**
   * Replaces the blocks [start, end) by the memory. Throws BAD_ARGUMENT like `append`, and for an invalid
   * range.
   */
  replace(start: number, end: number, memory: Block): void {
    if (!(start >= 0 && start < end && end <= this.#blocks.length)) {
      throw new PocketError(
        "BAD_ARGUMENT",
        `Blocks [${start}, ${end}) cannot be replaced; there are ${this.#blocks.length}.`,
      );
    }
    this.#assignIds([memory]);
    this.#blocks = [...this.#blocks.slice(0, start), memory, ...this.#blocks.slice(end)];
  }

  #assignIds(blocks: readonly Block[]): void {
    const used = { ...this.#used };
    for (const { id } of blocks) {
      const series = id[0] as "b" | "r";
      const expected = blockId(series, ++used[series]);
      if (id !== expected) {
        throw new PocketError("BAD_ARGUMENT", `The next block of its series is ${expected}, not ${id}.`);
      }
    }
    Object.assign(this.#used, used);
  }
}
