// The ordered blocks of a conversation behind its instructions: append at the end, replace a range by a memory.
// It gives out ids and adds up tokens. It neither archives nor stores, so whoever changes it has done that
// before; and it does not know which blocks are protected.

import type { Message } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";
import { type Block, type BlockId, blockId, type CountTokens, messagesOf, tokensOf } from "./block.ts";

export interface HistoryOptions {
  /** Usually one system message. Never compacted. */
  readonly instructions: readonly Message[];
  readonly count: CountTokens;
  /** Blocks of a conversation that goes on, in order; ids may be missing in them, but not be lower than `used`. */
  readonly blocks?: readonly Block[];
  /** How many ids of each series were given out, those of blocks that are gone included. */
  readonly used?: { readonly b: number; readonly r: number };
}

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

  /** In order. Stays as it is; a change gives another array. */
  get blocks(): readonly Block[] {
    return this.#blocks;
  }

  /** Of the instructions and all blocks. */
  get tokens(): number {
    return this.#blocks.reduce((sum, { tokens }) => sum + tokens, this.#instructionTokens);
  }

  /** What is sent: instructions, then every block's messages, up to and without the block at `end`. */
  messages(end = this.#blocks.length): Message[] {
    return [...this.instructions, ...this.#blocks.slice(0, end).flatMap((block) => messagesOf(block))];
  }

  /** Place of a block in the current order; -1 when it is not in it. */
  indexOf(id: BlockId): number {
    return this.#blocks.findIndex((block) => block.id === id);
  }

  /** The ids that the next blocks will have. Gives none out: append and replace do. */
  nextIds(series: "b" | "r", count: number): BlockId[] {
    return Array.from({ length: count }, (_, offset) => blockId(series, this.#used[series] + 1 + offset));
  }

  /** Throws BAD_ARGUMENT for an id that is not the next of its series. */
  append(...blocks: readonly Block[]): void {
    this.#take(blocks);
    this.#blocks = [...this.#blocks, ...blocks];
  }

  /** The blocks at [start, end) give way to the memory. Throws BAD_ARGUMENT as `append`, and for a bad range. */
  replace(start: number, end: number, memory: Block): void {
    if (!(start >= 0 && start < end && end <= this.#blocks.length)) {
      throw new PocketError(
        "BAD_ARGUMENT",
        `Blocks [${start}, ${end}) cannot be replaced; there are ${this.#blocks.length}.`,
      );
    }
    this.#take([memory]);
    this.#blocks = [...this.#blocks.slice(0, start), memory, ...this.#blocks.slice(end)];
  }

  #take(blocks: readonly Block[]): void {
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
