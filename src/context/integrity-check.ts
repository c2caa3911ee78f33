// Finds damage in a store of runs and describes each in a sentence: the SQLite file, messages against their
// digests, blocks that are neither in a history nor in an archive, dangling references. Repairs nothing.
import type Database from "better-sqlite3";
import { PocketError } from "../errors.ts";
import { sha256 } from "./journal.ts";
import { type RunRows, readRows, rebuild } from "./reader.ts";

/** One damage that checkStore found. */
export interface Damage {
  /** Id of the run. Absent: the file itself is damaged. */
  readonly run?: string;
  /** A sentence. */
  readonly what: string;
}

/** Checks the run `only`, or the file and all runs. Empty: no damage. Reads every row. */
export function checkStore(database: Database.Database, only?: string): Damage[] {
  const runs = database.prepare<[], { id: string }>("SELECT id FROM runs ORDER BY id").all();
  const damages: Damage[] = only === undefined ? checkFile(database) : [];
  for (const { id } of runs.filter((run) => only === undefined || run.id === only)) {
    const rows = readRows(database, id);
    if (rows) damages.push(...checkRun(rows).map((what) => ({ run: id, what })));
  }
  return damages;
}

function checkFile(database: Database.Database): Damage[] {
  const pages = database.pragma("integrity_check") as { integrity_check: string }[];
  const keys = database.pragma("foreign_key_check") as { table: string; parent: string }[];
  return [
    ...pages.filter((row) => row.integrity_check !== "ok").map((row) => ({ what: row.integrity_check })),
    ...keys.map(({ table, parent }) => ({ what: `A row of ${table} points at a missing row of ${parent}.` })),
  ];
}

/** The damages of one run. */
export function checkRun(rows: RunRows): string[] {
  return [
    ...checkMessages(rows),
    ...checkIds(rows),
    ...checkPlaces(rows),
    ...checkRecords(rows),
    ...checkShape(rows),
  ];
}

function checkMessages({ messages, blocks }: RunRows): string[] {
  const ids = new Set(blocks.map(({ id }) => id));
  return messages.flatMap(({ id, block, body, sha256: digest }, index) => [
    ...(id === index + 1 ? [] : [`Message ${index + 1} is missing: the next one is ${id}.`]),
    ...(sha256(body) === digest ? [] : [`Message ${id} is not what was written: its digest differs.`]),
    ...(ids.has(block) ? [] : [`Message ${id} belongs to ${block}, which does not exist.`]),
  ]);
}

/** Ids are assigned in order and no row is ever deleted, so a missing number is a lost block. */
function checkIds({ blocks }: RunRows): string[] {
  return (["b", "r"] as const).flatMap((series) => {
    const numbers = blocks.filter(({ id }) => id[0] === series).map(({ id }) => Number(id.slice(1)));
    const sorted = numbers.sort((left, right) => left - right);
    const missing = sorted.findIndex((number, index) => number !== index + 1);
    return missing < 0 ? [] : [`Block ${series}${String(missing + 1).padStart(3, "0")} is missing.`];
  });
}

/** Every block is either in the history or under a tag. */
function checkPlaces({ blocks, parts }: RunRows): string[] {
  const archived = new Map(parts.map(({ block, tag }) => [block, tag]));
  return blocks.flatMap(({ id, place }) => {
    const tag = archived.get(id);
    if (place === null && tag === undefined) return [`${id} is neither in the history nor under a tag.`];
    return place !== null && tag !== undefined ? [`${id} is in the history and under ${tag}.`] : [];
  });
}

function checkRecords({ records, blocks, parts }: RunRows): string[] {
  const tags = new Set(records.map(({ tag }) => tag));
  const memories = new Map(blocks.flatMap(({ id, tag }) => (tag === null ? [] : [[id, tag] as const])));
  return [
    ...records
      .filter(({ tag, memory }) => memories.get(memory) !== tag)
      .map(({ tag, memory }) => `${tag} has the memory ${memory}, which is not one of that tag.`),
    ...parts
      .filter(({ target_tag }) => target_tag !== null && !tags.has(target_tag))
      .map(
        ({ block, tag, target_tag }) =>
          `${block} under ${tag} points at ${target_tag}, which does not exist.`,
      ),
  ];
}

/** What the reader refuses. */
function checkShape(rows: RunRows): string[] {
  try {
    rebuild(rows, { count: () => 0 });
    return [];
  } catch (cause) {
    if (cause instanceof PocketError) return [cause.detail];
    if (cause instanceof SyntaxError) return [`A row is not JSON: ${cause.message}.`];
    throw cause;
  }
}
