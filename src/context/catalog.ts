// The list of blocks that the agent may compact, shown behind the conversation before every request and never
// stored. Instructions (which are no blocks), the latest user request, and everything from the latest exchange
// on are protected and not in it. Text and numbers only; what comes of a selection is compact.ts.

import type { Message } from "../chat/chat.ts";
import type { Block, BlockId } from "./block.ts";
import type { History } from "./history.ts";
import { labelOf } from "./tag.ts";

export interface CatalogEntry {
  readonly id: BlockId;
  readonly kind: Block["kind"];
  readonly tokens: number;
  /** One line of at most 72 characters. */
  readonly label: string;
}

/** Tokens in use, and the window they have to stay in. */
export interface ContextUse {
  readonly used: number;
  readonly limit: number;
}

/** Blocks that are not protected, in order. */
export function catalogOf(history: History): CatalogEntry[] {
  const { blocks } = history;
  return blocks
    .filter((_, place) => protection(blocks, place) === undefined)
    .map((block) => ({ id: block.id, kind: block.kind, tokens: block.tokens, label: blockLabel(block) }));
}

/**
 * Why the block at this place is protected; undefined when it is not. Copies that were just appended are part
 * of the latest exchange: the agent has not answered them yet.
 */
export function protection(blocks: readonly Block[], place: number): string | undefined {
  const block = blocks[place]!;
  const latest = blocks.findLast((other) => other.kind === "request" && !other.origin);
  if (block === latest) return "is the latest user request";
  const exchange = blocks.findLastIndex((other) => other.kind === "exchange" && !other.origin);
  if (exchange < 0 || place < exchange) return undefined;
  return place === exchange ? "is the latest exchange" : "came with the latest exchange";
}

/** The trailing message. */
export function catalogMessage(history: History, { used, limit }: ContextUse): Message {
  const entries = catalogOf(history);
  const room = `${formatTokens(used)} of ${formatTokens(limit)} tokens are in use (${Math.round((100 * used) / limit)} %).`;
  if (entries.length === 0) {
    return { role: "user", content: `[context catalog] No block can be compacted yet. ${room}` };
  }
  const rows = entries.map(
    ({ id, kind, tokens, label }) => `${id} ${kind} ${formatTokens(tokens)} tokens: ${label}`,
  );
  const head = "[context catalog] Blocks that compact_block may take, in order; the rest is protected.";
  return { role: "user", content: [head, ...rows, room].join("\n") };
}

/** `12,400`, whatever the locale of the machine. */
export function formatTokens(tokens: number): string {
  return String(tokens).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** One line of at most 72 characters: what the block is about, as far as its beginning tells. */
export function blockLabel(block: Block): string {
  return line(beginningOf(block));
}

function beginningOf(block: Block): string {
  if (block.kind === "memory") {
    const [, ...summary] = block.message.content.split("\n");
    return `${labelOf(block.tag, block.refs)} ${summary.join(" ")}`;
  }
  const { message } = block.originals[0]!;
  const calls = (message.toolCalls ?? []).map(({ name, arguments: given }) => `${name} ${given}`);
  const text = calls.length > 0 ? calls.join("; ") : message.content;
  return block.origin ? `copy of ${block.origin.block} (${block.origin.tag}) ${text}` : text;
}

/** One line, cut between characters. */
function line(text: string): string {
  const characters = Array.from(text.replace(/\s+/g, " ").trim());
  return characters.length <= 72 ? characters.join("") : `${characters.slice(0, 71).join("")}…`;
}
