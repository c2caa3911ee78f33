// Runs in one SQLite file: conversations, archives and events, each change one transaction in write-ahead mode,
// on disk before the call returns. Opening, making, listing and resuming runs are here; what a run writes is
// journal.ts, what is read back is reader.ts.
import Database from "better-sqlite3";
import type { Message } from "../chat/chat.ts";
import { PocketError, pocketError } from "../errors.ts";
import type { CountTokens } from "./block.ts";
import { Conversation } from "./conversation.ts";
import { RunJournal } from "./journal.ts";
import { readConversation } from "./reader.ts";
import { schema, schemaVersion } from "./schema.ts";

export interface StoreOptions {
  /** Called with each statement before it runs. */
  readonly trace?: (sql: string) => void;
}

export interface RunInfo {
  readonly id: string;
  readonly createdMs: number;
  readonly title: string;
  /** What the harness needs to go on, as it gave it. */
  readonly settings: unknown;
}

export interface NewRun {
  readonly id: string;
  readonly title: string;
  readonly settings: unknown;
  readonly instructions: readonly Message[];
}

/** A conversation whose changes are on disk, and the events beside it. */
export interface Run {
  readonly info: RunInfo;
  readonly conversation: Conversation;
  readonly journal: RunJournal;
}

export class Store {
  readonly #database: Database.Database;

  /**
   * Opens the file, or makes it; ":memory:" keeps nothing. Throws STORE_UNUSABLE for a file that is no store of
   * this version, or cannot be opened.
   */
  constructor(
    readonly file: string,
    { trace }: StoreOptions = {},
  ) {
    try {
      this.#database = new Database(file, trace ? { verbose: (sql) => trace(String(sql)) } : {});
    } catch (cause) {
      throw pocketError("STORE_UNUSABLE", file, sentence(cause));
    }
    try {
      prepare(this.#database, file);
    } catch (cause) {
      this.#database.close();
      throw cause instanceof PocketError ? cause : pocketError("STORE_UNUSABLE", file, sentence(cause));
    }
  }

  /** For reader.ts, integrity-check.ts and export.ts. */
  get database(): Database.Database {
    return this.#database;
  }

  /** Throws RUN_EXISTS for an id that is taken. */
  create({ id, title, settings, instructions }: NewRun, count: CountTokens): Run {
    const info = { id, createdMs: Date.now(), title, settings };
    const insert = this.#database.prepare(
      "INSERT INTO runs (id, created_ms, title, settings, instructions) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    );
    const { changes } = insert.run(
      id,
      info.createdMs,
      title,
      JSON.stringify(settings ?? null),
      JSON.stringify(instructions),
    );
    if (changes === 0) throw pocketError("RUN_EXISTS", id, this.file);
    const journal = new RunJournal(this.#database, id);
    return { info, journal, conversation: new Conversation({ instructions, count, journal }) };
  }

  /** The run as it was after its last change. Throws RUN_NOT_FOUND, and RUN_DAMAGED where rows contradict. */
  resume(id: string, count: CountTokens): Run {
    const info = this.list().find((run) => run.id === id);
    if (!info) throw pocketError("RUN_NOT_FOUND", id, this.file);
    const journal = new RunJournal(this.#database, id);
    return { info, journal, conversation: readConversation(this.#database, id, { count, journal }) };
  }

  /** Newest first. */
  list(): RunInfo[] {
    const rows = this.#database
      .prepare<[], { id: string; created_ms: number; title: string; settings: string }>(
        "SELECT id, created_ms, title, settings FROM runs ORDER BY created_ms DESC, id",
      )
      .all();
    return rows.map(({ id, created_ms, title, settings }) => ({
      id,
      createdMs: created_ms,
      title,
      settings: JSON.parse(settings),
    }));
  }

  /** Everything of the run, its originals too. Throws RUN_NOT_FOUND. */
  delete(id: string): void {
    const { changes } = this.#database.prepare("DELETE FROM runs WHERE id = ?").run(id);
    if (changes === 0) throw pocketError("RUN_NOT_FOUND", id, this.file);
  }

  /** Idempotent. */
  close(): void {
    this.#database.close();
  }
}

function prepare(database: Database.Database, file: string): void {
  // FULL: a commit survives the loss of power, not only the death of the process.
  for (const pragma of [
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "busy_timeout = 5000",
  ]) {
    database.pragma(pragma);
  }
  const make = database.transaction(() => {
    const version = database.pragma("user_version", { simple: true });
    if (version === schemaVersion) return;
    const tables = database.prepare("SELECT count(*) AS count FROM sqlite_master").get() as { count: number };
    if (version !== 0 || tables.count > 0) {
      throw pocketError("STORE_UNUSABLE", file, `its version is ${version}, not ${schemaVersion}`);
    }
    database.exec(schema);
    database.pragma(`user_version = ${schemaVersion}`);
  });
  make.immediate();
}

function sentence(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
