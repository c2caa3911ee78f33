// A history and its archive, changed together and written to a journal first. Each change is planned, written
// to the journal (which may fail), then done in memory (which cannot fail), so no original leaves the history
// before it is archived. Calls no model and refuses nothing; the tools in compact.ts and expand.ts do.

import type { Message } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";
import { Archive, type ArchiveRecord, partsOf, type Recalled, refsOf } from "./archive.ts";
import {
  type Block,
  type BlockId,
  checkExchange,
  type Exchange,
  type Memory,
  type Original,
  type Request,
  tokensOf,
} from "./block.ts";
import { History, type HistoryOptions } from "./history.ts";
import { memoryHead, tagOf } from "./tag.ts";

/**
 * Where changes are kept. A call that returns has made its change durable; one that throws has changed
 * nothing.
 */
export interface Journal {
  appended(blocks: readonly Block[]): void;
  compacted(compaction: Compaction): void;
}

/** Indices in the history, [start, end). */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** A compaction, planned or done. `replaced`: ids of the blocks. */
export interface Compaction {
  readonly replaced: readonly BlockId[];
  readonly record: ArchiveRecord;
  readonly memory: Memory;
  /** Tokens of the replaced blocks. */
  readonly tokens: number;
}

/** Options of a Conversation. */
export interface ConversationOptions extends HistoryOptions {
  /** Default: an empty one. */
  readonly archive?: Archive;
  /** Absent: the conversation is in memory only. */
  readonly journal?: Journal;
  /** Number of original messages so far, archived ones included. Default: 0. */
  readonly originals?: number;
}

/** The message of a memory: a head line with tag and range, then the summary. */
export function memoryMessage({ tag, parts, summary }: ArchiveRecord): Message {
  const covers = parts.map(({ block }) => block);
  return { role: "user", content: `${memoryHead(tag, refsOf(parts), covers)}\n${summary}` };
}

/** The state of one agent. Use one instance per run at a time. */
export class Conversation {
  readonly history: History;
  readonly archive: Archive;
  readonly #journal: Journal | undefined;
  #originals: number;

  constructor({ archive = new Archive(), journal, originals = 0, ...rest }: ConversationOptions) {
    this.history = new History(rest);
    this.archive = archive;
    this.#journal = journal;
    this.#originals = originals;
  }

  /** Appends a user message. Throws BAD_ARGUMENT for another role, and errors of the journal. */
  request(message: Message): Request {
    if (message.role !== "user") {
      throw new PocketError("BAD_ARGUMENT", `A request is a user message, not a ${message.role} one.`);
    }
    const block: Request = {
      kind: "request",
      id: this.history.nextIds("r", 1)[0]!,
      ...this.#withIds([message]),
    };
    this.#append([block]);
    return block;
  }

  /**
   * Appends an assistant message and the results of its calls. Throws BAD_ARGUMENT if a result is missing.
   */
  exchange(messages: readonly Message[]): Exchange {
    checkExchange(messages);
    const block: Exchange = {
      kind: "exchange",
      id: this.history.nextIds("b", 1)[0]!,
      ...this.#withIds(messages),
    };
    this.#append([block]);
    return block;
  }

  /** The compaction of the range with this summary. Changes nothing; valid until the next change. */
  plan({ start, end }: Range, summary: string): Compaction {
    const blocks = this.history.blocks.slice(start, end);
    const parts = partsOf(blocks);
    const refs = refsOf(parts);
    const tag = tagOf(this.archive.records.length + 1);
    const replaced = blocks.map(({ id }) => id);
    const id = this.history.nextIds("b", 1)[0]!;
    const record = { tag, parts, memory: id, summary };
    const message = memoryMessage(record);
    const memory: Memory = { kind: "memory", id, tag, refs, message, tokens: this.history.count(message) };
    const tokens = blocks.reduce((sum, block) => sum + block.tokens, 0);
    return { replaced, record, memory, tokens };
  }

  /**
   * Archives the originals and replaces them by the memory. Throws errors of the journal, having changed
   * nothing.
   */
  compact(range: Range, summary: string): Compaction {
    const compaction = this.plan(range, summary);
    this.#journal?.compacted(compaction);
    this.archive.file(compaction.record);
    this.history.replace(range.start, range.end, compaction.memory);
    return compaction;
  }

  /** Appends copies of archived blocks under new ids. */
  expand(recalled: readonly Recalled[]): Block[] {
    const copies = this.copies(recalled);
    if (copies.length > 0) this.#append(copies);
    return copies;
  }

  /** The blocks that `expand` would append. Changes nothing. */
  copies(recalled: readonly Recalled[]): Block[] {
    const ids = {
      request: this.history.nextIds("r", recalled.length),
      exchange: this.history.nextIds("b", recalled.length),
    };
    return recalled.map(({ of, tag, source, originals }) => ({
      kind: of,
      id: ids[of].shift()!,
      originals,
      tokens: this.#tokens(originals),
      origin: { tag, block: source },
    }));
  }

  #withIds(messages: readonly Message[]): { originals: readonly Original[]; tokens: number } {
    const originals = messages.map((message, index) => ({ id: this.#originals + 1 + index, message }));
    return { originals, tokens: this.#tokens(originals) };
  }

  #tokens(originals: readonly Original[]): number {
    return tokensOf(
      originals.map(({ message }) => message),
      this.history.count,
    );
  }

  #append(blocks: readonly Block[]): void {
    this.#journal?.appended(blocks);
    this.history.append(...blocks);
    for (const block of blocks) {
      if (block.kind !== "memory" && !block.origin) this.#originals += block.originals.length;
    }
  }
}
