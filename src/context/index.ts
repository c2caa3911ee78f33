// What other programs import as "pocket/context": a history that can be compacted, an archive that forgets nothing,
// the two tools for an agent, the store that keeps it. For people with a loop of their own; it needs no engine, no
// server and no harness of this house.

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
