// Runs in one SQLite file: conversations, archives and events. Each change is one transaction in write-ahead
// mode and on disk before the call returns. This file opens the store and creates, lists, resumes and deletes
// runs; journal.ts writes a run, reader.ts reads it.
import Database from "better-sqlite3";
import type { Message } from "../chat/chat.ts";
import { PocketError, pocketError } from "../errors.ts";
import type { CountTokens } from "./block.ts";
import { Conversation } from "./conversation.ts";
import { RunJournal } from "./journal.ts";
import { readConversation } from "./reader.ts";
import { schema, schemaVersion } from "./schema.ts";

export interface StoreOptions {
  /** Called with each SQL statement before it runs. */
  readonly trace?: (sql: string) => void;
}

/** A run without its conversation. */
export interface RunInfo {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly createdMs: number;
  readonly title: string;
  /** JSON that the harness stored to resume the run. */
  readonly settings: unknown;
}

export interface NewRun {
  readonly id: string;
  readonly title: string;
  readonly settings: unknown;
  readonly instructions: readonly Message[];
}

/**
 * An open run: changes of the conversation are on disk when the call returns. Valid until the store is
 * closed.
 */
export interface Run {
  readonly info: RunInfo;
  readonly conversation: Conversation;
  readonly journal: RunJournal;
}

/**
 * A file of runs. Several processes may open it, but only one may write a run at a time; a second one fails.
 */
export class Store {
  readonly #database: Database.Database;

  /**
   * Opens or creates the file; ":memory:" is a store that is lost on close. Throws STORE_UNUSABLE if the file
   * cannot be opened or is not a store of this version. The caller closes the store.
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

  /** For checkStore and exportRun. */
  get database(): Database.Database {
    return this.#database;
  }

  /** Creates a run. Throws RUN_EXISTS if the id is taken. */
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

  /**
   * The run after its last change. Throws RUN_NOT_FOUND, and RUN_DAMAGED if its rows contradict each other.
   */
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

  /** Deletes the run with its originals. Throws RUN_NOT_FOUND. */
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
  // FULL: a commit survives a loss of power, not only the end of the process.
  for (const pragma of [
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "busy_timeout = 5000",
  ]) {
    database.pragma(pragma);
  }
  const createTables = database.transaction(() => {
    const version = database.pragma("user_version", { simple: true });
    if (version === schemaVersion) return;
    const tables = database.prepare("SELECT count(*) AS count FROM sqlite_master").get() as { count: number };
    if (version !== 0 || tables.count > 0) {
      throw pocketError("STORE_UNUSABLE", file, `its version is ${version}, not ${schemaVersion}`);
    }
    database.exec(schema);
    database.pragma(`user_version = ${schemaVersion}`);
  });
  createTables.immediate();
}

function sentence(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
