// What a conversation is made of, as the agent is offered it: requests, exchanges and memories, each with an id
// it can point at. Types and the few facts about them; who may be compacted is catalog.ts, where originals go
// is archive.ts.

import type { Message } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";
import type { Tag } from "./tag.ts";

/** `b001` for exchanges and memories, `r001` for requests; counted up by each conversation, never reused. */
export type BlockId = `b${string}` | `r${string}`;

/** A message as it first came, word for word, with the number it has in its conversation, from 1. */
export interface Original {
  readonly id: number;
  readonly message: Message;
}

/** Where the copy came from: a block that the archive holds under `tag`. */
export interface Origin {
  readonly tag: Tag;
  readonly block: BlockId;
}

interface Kept {
  readonly id: BlockId;
  readonly originals: readonly Original[];
  /** By the counter of the conversation. */
  readonly tokens: number;
  /** Set on the copies that an expand appends; their originals are those of the block they copy. */
  readonly origin?: Origin;
}

/** What a user asked. */
export interface Request extends Kept {
  readonly kind: "request";
}

/** One assistant message with all its tool calls and one result for each. */
export interface Exchange extends Kept {
  readonly kind: "exchange";
}

/** A summary in the place of the blocks that are archived under its tag. */
export interface Memory {
  readonly kind: "memory";
  readonly id: BlockId;
  readonly tag: Tag;
  readonly refs: readonly Tag[];
  readonly message: Message;
  readonly tokens: number;
}

export type Block = Request | Exchange | Memory;

export type CountTokens = (message: Message) => number;

export function messagesOf(block: Block): readonly Message[] {
  return block.kind === "memory" ? [block.message] : block.originals.map(({ message }) => message);
}

export function tokensOf(messages: readonly Message[], count: CountTokens): number {
  return messages.reduce((sum, message) => sum + count(message), 0);
}

/** `b001`, `b012`, `b1234`. */
export function blockId(series: "b" | "r", number: number): BlockId {
  return `${series}${String(number).padStart(3, "0")}`;
}

export function isBlockId(text: unknown): text is BlockId {
  return typeof text === "string" && /^[br]\d{3,}$/.test(text);
}

/** Throws BAD_ARGUMENT unless the messages are one whole exchange: no call without its result, and in reverse. */
export function checkExchange(messages: readonly Message[]): void {
  const [first, ...results] = messages;
  if (first?.role !== "assistant") {
    throw broken(
      `begins with ${first ? `a ${first.role}` : "no"} message; it must begin with an assistant one`,
    );
  }
  const open = (first.toolCalls ?? []).map(({ id }) => id);
  for (const { role, toolCallId } of results) {
    const place = open.indexOf(toolCallId ?? "");
    if (role !== "tool" || place < 0) {
      throw broken(
        `has a ${role} message for call '${toolCallId}'; open calls: ${open.join(", ") || "none"}`,
      );
    }
    open.splice(place, 1);
  }
  if (open.length > 0) throw broken(`lacks the results of ${open.join(", ")}`);
}

function broken(what: string): PocketError {
  return new PocketError("BAD_ARGUMENT", `The exchange ${what}.`);
}
