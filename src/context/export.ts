// Exports a run as JSON lines: one object per line with its `type`, every original once and word for word.
// Rows are exported as they are, so that a damaged run can be exported too.
import type Database from "better-sqlite3";
import { pocketError } from "../errors.ts";

/** Per type of line: the query, whose columns are the fields, and the names of the JSON columns. */
const queries: readonly (readonly [type: string, sql: string, json: readonly string[]])[] = [
  [
    "run",
    "SELECT id, created_ms AS createdMs, title, settings, instructions FROM runs WHERE id = ?",
    ["settings", "instructions"],
  ],
  ["message", "SELECT id, block, body AS message FROM messages WHERE run = ? ORDER BY id", ["message"]],
  [
    "block",
    "SELECT id, kind, place, tokens, tag, origin_tag AS originTag, origin_block AS originBlock FROM blocks WHERE run = ? ORDER BY substr(id, 1, 1), length(id), id",
    [],
  ],
  [
    "record",
    "SELECT tag, memory, summary, created_ms AS createdMs FROM records WHERE run = ? ORDER BY length(tag), tag",
    [],
  ],
  [
    "part",
    "SELECT tag, block, kind, target_tag AS targetTag, target_block AS targetBlock FROM parts WHERE run = ? ORDER BY length(tag), tag, ordinal",
    [],
  ],
  ["event", "SELECT seq, at_ms AS atMs, type AS name, body FROM events WHERE run = ? ORDER BY seq", ["body"]],
];

/**
 * The lines, without newlines. Fields that are null are left out; a JSON column that cannot be parsed is
 * exported as text. Throws RUN_NOT_FOUND before the first line.
 */
export function* exportRun(database: Database.Database, run: string): Generator<string, void, undefined> {
  const known = database.prepare("SELECT 1 FROM runs WHERE id = ?").get(run);
  if (!known) throw pocketError("RUN_NOT_FOUND", run, database.name);
  for (const [type, sql, json] of queries) {
    for (const row of database.prepare<[string], { [field: string]: unknown }>(sql).iterate(run)) {
      const fields = Object.entries(row).filter(([, value]) => value !== null);
      yield JSON.stringify({
        type,
        ...Object.fromEntries(
          fields.map(([name, value]) => [name, json.includes(name) ? parsed(value) : value]),
        ),
      });
    }
  }
}

/** The value itself if it is not JSON. */
function parsed(value: unknown): unknown {
  try {
    return JSON.parse(String(value));
  } catch {
    return value;
  }
}
