// Writes one run into its store: appended blocks, compactions, events. Each call is one transaction, so a
// process that is killed during a call has written nothing of it.
import { createHash } from "node:crypto";
import type Database from "better-sqlite3";
import { pocketError } from "../errors.ts";
import type { Part } from "./archive.ts";
import type { Block } from "./block.ts";
import type { Compaction, Journal } from "./conversation.ts";

/** The journal of one run. Valid until the store is closed. */
export class RunJournal implements Journal {
  constructor(
    private readonly database: Database.Database,
    private readonly run: string,
  ) {}

  /** Throws STORE_FAILED. */
  appended(blocks: readonly Block[]): void {
    this.#transact(() => {
      for (const block of blocks) {
        this.#insertBlock(block, this.#lastPlace() + 1);
        if (block.kind === "memory" || block.origin) continue;
        for (const { id, message } of block.originals) {
          const body = JSON.stringify(message);
          this.#write("INSERT INTO messages (run, id, block, body, sha256) VALUES (?, ?, ?, ?, ?)", [
            this.run,
            id,
            block.id,
            body,
            sha256(body),
          ]);
        }
      }
    });
  }

  /**
   * Writes the record and its parts, removes the blocks from the history, adds the memory. Throws
   * STORE_FAILED.
   */
  compacted({ replaced, record, memory }: Compaction): void {
    this.#transact(() => {
      const { place } = this.database
        .prepare("SELECT place FROM blocks WHERE run = ? AND id = ?")
        .get(this.run, replaced[0]) as { place: number };
      this.#write("INSERT INTO records (run, tag, memory, summary, created_ms) VALUES (?, ?, ?, ?, ?)", [
        this.run,
        record.tag,
        record.memory,
        record.summary,
        Date.now(),
      ]);
      record.parts.forEach((part, ordinal) => {
        this.#insertPart(record.tag, part, ordinal);
      });
      for (const id of replaced) {
        this.#write("UPDATE blocks SET place = NULL WHERE run = ? AND id = ?", [this.run, id]);
      }
      this.#insertBlock(memory, place);
    });
  }

  /** Adds an event with the next number of the run. `body`: stored as JSON. Throws STORE_FAILED. */
  event(type: string, body: unknown): void {
    this.#transact(() => {
      this.#write(
        "INSERT INTO events (run, seq, at_ms, type, body) SELECT ?, coalesce(max(seq), 0) + 1, ?, ?, ? FROM events WHERE run = ?",
        [this.run, Date.now(), type, JSON.stringify(body), this.run],
      );
    });
  }

  #insertBlock(block: Block, place: number): void {
    const origin = block.kind === "memory" ? undefined : block.origin;
    this.#write(
      "INSERT INTO blocks (run, id, kind, place, tokens, tag, origin_tag, origin_block) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      [
        this.run,
        block.id,
        block.kind,
        place,
        block.tokens,
        block.kind === "memory" ? block.tag : null,
        origin?.tag ?? null,
        origin?.block ?? null,
      ],
    );
  }

  #insertPart(tag: string, part: Part, ordinal: number): void {
    this.#write(
      "INSERT INTO parts (run, block, tag, ordinal, kind, target_tag, target_block) VALUES (?, ?, ?, ?, ?, ?, ?)",
      [
        this.run,
        part.block,
        tag,
        ordinal,
        part.kind,
        part.kind === "owned" ? null : part.tag,
        part.kind === "reused" ? part.source : null,
      ],
    );
  }

  #lastPlace(): number {
    const { place } = this.database
      .prepare("SELECT coalesce(max(place), 0) AS place FROM blocks WHERE run = ?")
      .get(this.run) as { place: number };
    return place;
  }

  #write(sql: string, values: readonly (string | number | null)[]): void {
    this.database.prepare(sql).run(...values);
  }

  #transact(work: () => void): void {
    try {
      this.database.transaction(work).immediate();
    } catch (cause) {
      throw pocketError(
        "STORE_FAILED",
        this.database.name,
        cause instanceof Error ? cause.message : String(cause),
      );
    }
  }
}

/** Hex digest of a message's JSON. */
export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
