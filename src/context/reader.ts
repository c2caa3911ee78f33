// Rebuilds a conversation from the rows of a store: its history in order, its archive, the ids assigned so
// far. Reads in one transaction and writes nothing. Refuses rows that contradict each other;
// integrity-check.ts lists all damages.
import type Database from "better-sqlite3";
import type { Message } from "../chat/chat.ts";
import { PocketError, pocketError } from "../errors.ts";
import { Archive, type Part, refsOf } from "./archive.ts";
import type { Block, BlockId, CountTokens, Original } from "./block.ts";
import { Conversation, type Journal, memoryMessage } from "./conversation.ts";
import type { Tag } from "./tag.ts";

export interface BlockRow {
  readonly id: BlockId;
  readonly kind: Block["kind"];
  /** Order in the history; null for an archived block. */
  readonly place: number | null;
  readonly tokens: number;
  readonly tag: Tag | null;
  readonly origin_tag: Tag | null;
  readonly origin_block: BlockId | null;
}

export interface PartRow {
  readonly tag: Tag;
  readonly block: BlockId;
  readonly kind: Part["kind"];
  readonly target_tag: Tag | null;
  readonly target_block: BlockId | null;
}

export interface MessageRow {
  readonly id: number;
  readonly block: BlockId;
  readonly body: string;
  readonly sha256: string;
}

export interface RecordRow {
  readonly tag: Tag;
  readonly memory: BlockId;
  readonly summary: string;
}

export interface RunRows {
  readonly instructions: readonly Message[];
  readonly messages: readonly MessageRow[];
  /** Ordered by `place`; archived blocks, which have none, come first. */
  readonly blocks: readonly BlockRow[];
  readonly records: readonly RecordRow[];
  readonly parts: readonly PartRow[];
}

/** Undefined for a run that does not exist. */
export function readRows(database: Database.Database, run: string): RunRows | undefined {
  const all = <Row>(sql: string) => database.prepare<[string], Row>(sql).all(run);
  const read = database.transaction((): RunRows | undefined => {
    const [head] = all<{ instructions: string }>("SELECT instructions FROM runs WHERE id = ?");
    if (!head) return undefined;
    return {
      instructions: JSON.parse(head.instructions),
      messages: all("SELECT id, block, body, sha256 FROM messages WHERE run = ? ORDER BY id"),
      blocks: all("SELECT * FROM blocks WHERE run = ? ORDER BY place"),
      records: all("SELECT tag, memory, summary FROM records WHERE run = ? ORDER BY length(tag), tag"),
      parts: all("SELECT * FROM parts WHERE run = ? ORDER BY length(tag), tag, ordinal"),
    };
  });
  return read();
}

/** Throws RUN_NOT_FOUND and RUN_DAMAGED. */
export function readConversation(
  database: Database.Database,
  run: string,
  options: { readonly count: CountTokens; readonly journal?: Journal },
): Conversation {
  const rows = readRows(database, run);
  if (!rows) throw pocketError("RUN_NOT_FOUND", run, database.name);
  try {
    return rebuild(rows, options);
  } catch (cause) {
    if (cause instanceof PocketError || cause instanceof SyntaxError) {
      throw pocketError("RUN_DAMAGED", run, cause.message);
    }
    throw cause;
  }
}

/** Throws BAD_ARGUMENT for rows that contradict each other, SyntaxError for a body that is not JSON. */
export function rebuild(
  rows: RunRows,
  options: { readonly count: CountTokens; readonly journal?: Journal },
): Conversation {
  const originals = new Map<BlockId, Original[]>();
  for (const { id, block, body } of rows.messages) {
    const message: Message = JSON.parse(body);
    originals.set(block, [...(originals.get(block) ?? []), { id, message }]);
  }
  const kinds = new Map(rows.blocks.map(({ id, kind }) => [id, kind]));
  const archive = new Archive();
  for (const { tag, memory, summary } of rows.records) {
    const parts = rows.parts.filter((part) => part.tag === tag);
    archive.file({ tag, memory, summary, parts: parts.map((part) => partOf(part, kinds, originals)) });
  }
  const inHistory = rows.blocks.filter(({ place }) => place !== null);
  return new Conversation({
    ...options,
    instructions: rows.instructions,
    archive,
    blocks: inHistory.map((row) => blockOf(row, archive, originals)),
    used: { b: countOf(rows, "b"), r: countOf(rows, "r") },
    originals: rows.messages.at(-1)?.id ?? 0,
  });
}

/** The highest id of the series. */
function countOf({ blocks }: RunRows, series: "b" | "r"): number {
  return Math.max(0, ...blocks.filter(({ id }) => id[0] === series).map(({ id }) => Number(id.slice(1))));
}

function partOf(
  { kind, block, tag, target_tag, target_block }: PartRow,
  kinds: ReadonlyMap<BlockId, Block["kind"]>,
  originals: ReadonlyMap<BlockId, readonly Original[]>,
): Part {
  if (kind === "ref") return { kind, block, tag: needed(target_tag, `${block} in ${tag} has no target`) };
  if (kind === "reused") {
    const source = needed(target_block, `${block} in ${tag} has no source`);
    return { kind, block, tag: needed(target_tag, `${block} in ${tag} has no target`), source };
  }
  const messages = needed(originals.get(block), `the messages of ${block} in ${tag} are missing`);
  return { kind, block, of: kinds.get(block) === "request" ? "request" : "exchange", originals: messages };
}

function blockOf(
  row: BlockRow,
  archive: Archive,
  originals: ReadonlyMap<BlockId, readonly Original[]>,
): Block {
  const { id, kind, tokens, origin_tag, origin_block } = row;
  if (kind === "memory") {
    const record = needed(archive.get(needed(row.tag, `${id} has no tag`)), `the record of ${id} is missing`);
    return { kind, id, tag: record.tag, refs: refsOf(record.parts), message: memoryMessage(record), tokens };
  }
  const messages = needed(originals.get(origin_block ?? id), `the messages of ${id} are missing`);
  const origin = origin_tag && origin_block ? { origin: { tag: origin_tag, block: origin_block } } : {};
  return { kind, id, originals: messages, tokens, ...origin };
}

function needed<Value>(value: Value | null | undefined, problem: string): Value {
  if (value === null || value === undefined) throw new PocketError("BAD_ARGUMENT", `Row: ${problem}.`);
  return value;
}
