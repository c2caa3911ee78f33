// The catalog: the list of blocks that the agent may compact. It ends every request and is never stored.
// Protected blocks are not in it: the instructions, the latest user request, and everything from the latest
// exchange on.

import type { Message } from "../chat/chat.ts";
import type { Block, BlockId } from "./block.ts";
import type { History } from "./history.ts";
import { labelOf } from "./tag.ts";

/** A block that may be compacted. */
export interface CatalogEntry {
  readonly id: BlockId;
  readonly kind: Block["kind"];
  readonly tokens: number;
  /** One line of at most 72 characters. */
  readonly label: string;
}

/** Tokens in use, and tokens of the window. */
export interface ContextUse {
  readonly used: number;
  readonly limit: number;
}

/** The blocks that are not protected, in order. */
export function catalogOf(history: History): CatalogEntry[] {
  const { blocks } = history;
  return blocks
    .filter((_, index) => protection(blocks, index) === undefined)
    .map((block) => ({ id: block.id, kind: block.kind, tokens: block.tokens, label: blockLabel(block) }));
}

/**
 * Why the block at `index` is protected; undefined if it is not. Copies after the latest exchange are
 * protected, because the agent has not read them yet.
 */
export function protection(blocks: readonly Block[], index: number): string | undefined {
  const block = blocks[index]!;
  const latest = blocks.findLast((other) => other.kind === "request" && !other.origin);
  if (block === latest) return "is the latest user request";
  const exchange = blocks.findLastIndex((other) => other.kind === "exchange" && !other.origin);
  if (exchange < 0 || index < exchange) return undefined;
  return index === exchange ? "is the latest exchange" : "came with the latest exchange";
}

/** The catalog as the last message of a request. Do not append it to the history. */
export function catalogMessage(history: History, { used, limit }: ContextUse): Message {
  const entries = catalogOf(history);
  const inUse = `${formatTokens(used)} of ${formatTokens(limit)} tokens are in use (${Math.round((100 * used) / limit)} %).`;
  if (entries.length === 0) {
    return { role: "user", content: `[context catalog] No block can be compacted yet. ${inUse}` };
  }
  const rows = entries.map(
    ({ id, kind, tokens, label }) => `${id} ${kind} ${formatTokens(tokens)} tokens: ${label}`,
  );
  const head = "[context catalog] Blocks that compact_block may take, in order; the rest is protected.";
  return { role: "user", content: [head, ...rows, inUse].join("\n") };
}

/** `12,400` in every locale. */
export function formatTokens(tokens: number): string {
  return String(tokens).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** The beginning of the block in one line of at most 72 characters. */
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

/** One line of at most 72 characters; never cut inside a character. */
function line(text: string): string {
  const characters = Array.from(text.replace(/\s+/g, " ").trim());
  return characters.length <= 72 ? characters.join("") : `${characters.slice(0, 71).join("")}…`;
}
