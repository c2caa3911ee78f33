// The package entry "pocket/context", for agents with a loop of their own: a history that can be compacted,
// an archive that keeps every original, the two tools for the agent, and a store. It needs no engine, no
// server and no harness.

export type { CacheUsage, Chat, ChatEvent, ChatRequest, Message, Tool, ToolCall } from "../chat/chat.ts";
export { Archive, type ArchiveRecord, type Recalled } from "./archive.ts";
export type { Block, BlockId, CountTokens, Exchange, Memory, Original, Request } from "./block.ts";
export { type CatalogEntry, catalogMessage, catalogOf } from "./catalog.ts";
export { type ChatAnswer, collectAnswer } from "./collect-answer.ts";
export { type CompactOptions, type CompactOutcome, compactBlock } from "./compact.ts";
export { Compressor, type CompressorOptions } from "./compressor.ts";
export { Conversation, type ConversationOptions, type Journal } from "./conversation.ts";
export { type ExpandOptions, type Expansion, expandBlock } from "./expand.ts";
export { exportRun } from "./export.ts";
export { History } from "./history.ts";
export { checkStore, type Damage } from "./integrity-check.ts";
export { type Run, Store } from "./store.ts";
export type { Tag } from "./tag.ts";
export { compactTool, expandTool } from "./tools.ts";

import type { CacheUsage } from "../chat/chat.ts";
import { type ChatAnswer, collectAnswer } from "./collect-answer.ts";

/** @deprecated Use ChatAnswer. */
export type Answer = ChatAnswer;
/** @deprecated Use CacheUsage. */
export type Bill = CacheUsage;
/** @deprecated Use collectAnswer. */
export const gatherAnswer = collectAnswer;
