// Blocks of a conversation: requests, exchanges and memories, each with an id that the agent can name. Types
// and facts about single blocks only.

import type { Message } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";
import type { Tag } from "./tag.ts";

/**
 * `b001` for exchanges and memories, `r001` for requests. Counted up in each conversation and never reused.
 */
export type BlockId = `b${string}` | `r${string}`;

/** A message word for word, with its number in the conversation, from 1. */
export interface Original {
  readonly id: number;
  readonly message: Message;
}

/** The source of a copy: a block that the archive owns under `tag`. */
export interface Origin {
  readonly tag: Tag;
  readonly block: BlockId;
}

interface Originals {
  readonly id: BlockId;
  readonly originals: readonly Original[];
  /** Counted by the conversation's CountTokens. */
  readonly tokens: number;
  /** Set on copies that an expand appends. `originals` are then those of the copied block. */
  readonly origin?: Origin;
}

/** A user message. */
export interface Request extends Originals {
  readonly kind: "request";
}

/** An assistant message with its tool calls and one result for each call. */
export interface Exchange extends Originals {
  readonly kind: "exchange";
}

/** A summary that replaces the blocks archived under its tag. */
export interface Memory {
  readonly kind: "memory";
  readonly id: BlockId;
  readonly tag: Tag;
  readonly refs: readonly Tag[];
  readonly message: Message;
  readonly tokens: number;
}

/** An element of the history: the unit that the agent selects. */
export type Block = Request | Exchange | Memory;

/** Tokens of one message. Must give the same count for the same message. */
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

/** Throws BAD_ARGUMENT unless the messages are one exchange in which calls and results correspond. */
export function checkExchange(messages: readonly Message[]): void {
  const [first, ...results] = messages;
  if (first?.role !== "assistant") {
    throw badExchange(
      `begins with ${first ? `a ${first.role}` : "no"} message; it must begin with an assistant one`,
    );
  }
  const open = (first.toolCalls ?? []).map(({ id }) => id);
  for (const { role, toolCallId } of results) {
    const index = open.indexOf(toolCallId ?? "");
    if (role !== "tool" || index < 0) {
      throw badExchange(
        `has a ${role} message for call '${toolCallId}'; open calls: ${open.join(", ") || "none"}`,
      );
    }
    open.splice(index, 1);
  }
  if (open.length > 0) throw badExchange(`lacks the results of ${open.join(", ")}`);
}

function badExchange(what: string): PocketError {
  return new PocketError("BAD_ARGUMENT", `The exchange ${what}.`);
}
