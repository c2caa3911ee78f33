// The disk tier: cells of evicted sessions, written once and read back instead of being computed. A cache, never the
// only copy of anything: every failure is a log line, and the session is computed again. One folder belongs to one
// model and one process. The engine defines the format of the cell files.
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { EnginePort, SequencePort } from "../../engine/job.ts";
import type { Span } from "../../text/span.ts";
import { saltOf } from "../residency/prefix-index.ts";
import type { SessionName, Version } from "../residency/session.ts";
import { type File, filesIn } from "./disk-folder.ts";
import {
  fileNameOf,
  formatSidecar,
  markChunks,
  marksOf,
  type Sidecar,
  spanMark,
  spansIn,
  tokensIn,
  tokensMarked,
} from "./sidecar.ts";

export interface DiskOptions {
  readonly folder: string;
  /** Limit of the files' total size. */
  readonly bytes: number;
  readonly log: (line: string) => void;
}

/** A file, and the number of wanted tokens in it. */
export interface FileMatch {
  readonly id: string;
  readonly tokens: number;
}

export type Loaded = Omit<Version, "exactLength">;

export class DiskTier {
  hits = 0;
  writes = 0;
  /** Least recently used first. */
  readonly #files = new Map<string, File>();
  #bytes = 0;
  /** The last queued operation. They run one after another, so that no file is read while it is replaced. */
  #queue: Promise<unknown> = Promise.resolve();
  /** Files that are being written or queued for it; a name may occur twice. */
  readonly #writing = new Set<Sidecar & { readonly name: string }>();
  /** Files whose deletion is queued. */
  readonly #deleted = new Set<string>();
  #bytesPerToken = 0;
  #saves = 0;

  private constructor(private readonly options: DiskOptions) {}

  /** Lists what an earlier process left. Undefined, with a log line: the folder cannot be used. */
  static open(options: DiskOptions): DiskTier | undefined {
    const tier = new DiskTier(options);
    try {
      mkdirSync(options.folder, { recursive: true, mode: 0o700 });
      const probe = join(options.folder, ".probe");
      writeFileSync(probe, "");
      rmSync(probe);
      for (const file of filesIn(options.folder)) tier.#add(file);
    } catch (cause) {
      options.log(`No session is kept on disk: ${options.folder} cannot be used (${messageOf(cause)}).`);
      return undefined;
    }
    return tier;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Tokens in the session's file; 0: there is none. */
  tokensOf({ id, tenant }: Omit<SessionName, "named">): number {
    const name = fileNameOf(id, saltOf(tenant));
    const file = this.#deleted.has(name) ? undefined : this.#files.get(name);
    return file ? tokensIn(file) : 0;
  }

  /** The file that shares the most exact chunks with a prompt. `keys`: chunk keys of the prompt. */
  longestPrefix(keys: readonly string[]): { readonly id: string; readonly chunks: number } | undefined {
    const marks = marksOf(keys);
    let best: { readonly id: string; readonly chunks: number } | undefined;
    for (const file of this.#files.values()) {
      if (this.#deleted.has(file.name)) continue;
      let shared = 0;
      while (shared < marks.length && file.marks[shared] === marks[shared]) shared++;
      if (shared > 0 && shared * markChunks >= (best?.chunks ?? 0)) {
        best = { id: file.id, chunks: shared * markChunks };
      }
    }
    return best;
  }

  /**
   * Files of the tenant, and how many tokens of these spans each holds: victims of the session `of`, or anonymous
   * sessions if `of` is undefined. Waits for files that are being written.
   */
  async filesWith(
    tenant: string | undefined,
    spans: readonly Span[],
    of: string | undefined,
  ): Promise<FileMatch[]> {
    const salt = saltOf(tenant);
    const isMeant = (file: Sidecar) =>
      file.salt === salt && file.of === of && (of !== undefined || !file.named);
    if (this.#writes(isMeant)) await this.#queue;
    const files = Array.from(this.#files.values()).filter(
      (file) => isMeant(file) && !this.#deleted.has(file.name),
    );
    if (files.length === 0) return [];
    const marks = new Set(spans.map((span) => spanMark(salt, span)));
    return files.map((file) => ({ id: file.id, tokens: tokensMarked(file, marks) }));
  }

  /**
   * Begins to write the cells before it returns, so the caller may release them at once. Resolves when their pages
   * are no longer needed; never rejects. `keys`: keys of the exact chunks; `of`: see Sidecar.
   */
  async save(
    name: SessionName,
    version: Version,
    keys: readonly string[],
    usedAt: number,
    of?: string,
  ): Promise<void> {
    const salt = saltOf(name.tenant);
    const file = fileNameOf(name.id, salt);
    const { sequence, spans, relocated } = version;
    if (sequence.length * this.#bytesPerToken > this.options.bytes) return;
    const sidecar: Sidecar = {
      id: name.id,
      named: name.named,
      salt,
      of,
      spans: spans.map((span) => ({
        role: span.role,
        count: span.tokens.length,
        mark: spanMark(salt, span),
      })),
      relocated,
      marks: marksOf(keys),
      usedAt,
    };
    const writing = { ...sidecar, name: file };
    this.#writing.add(writing);
    this.#deleted.delete(file);
    const temporary = this.#path(file, `kv.${this.#saves++}`);
    const saving = sequence.save(temporary);
    void this.#enqueue(`Session '${name.id}' could not be written to disk`, async () => {
      try {
        await saving;
        await this.#enter(file, sidecar, temporary);
      } finally {
        this.#writing.delete(writing);
        await rm(temporary, { force: true });
      }
    });
    await saving.catch(() => undefined);
  }

  /** The session's cells as they were written. Undefined: they cannot be read, and the file is deleted. */
  async load(
    { id, tenant }: Omit<SessionName, "named">,
    engine: EnginePort,
  ): Promise<(Loaded & SessionName) | undefined> {
    const name = fileNameOf(id, saltOf(tenant));
    let loaded: (Loaded & SessionName) | undefined;
    await this.#enqueue(`Session '${id}' could not be read from disk and is computed again`, async () => {
      const file = this.#files.get(name);
      if (!file) return;
      const cells = await this.#cells(file, engine);
      this.#files.delete(name);
      this.#files.set(name, file);
      this.hits++;
      loaded = { id, tenant, named: file.named, relocated: file.relocated, ...cells };
    });
    return loaded;
  }

  /** Deletes the session's file and victims. False: it had no file. The files are gone when `settled` resolves. */
  delete({ id, tenant }: Omit<SessionName, "named">): boolean {
    const salt = saltOf(tenant);
    const name = fileNameOf(id, salt);
    const victims = () =>
      Array.from(this.#files.values()).flatMap((file) =>
        file.of === id && file.salt === salt ? [file.name] : [],
      );
    const found =
      !this.#deleted.has(name) && (this.#files.has(name) || this.#writes((file) => file.name === name));
    const names = [name, ...victims()];
    if (!found && names.length === 1 && this.#writing.size === 0) return false;
    for (const one of names) this.#deleted.add(one);
    void this.#enqueue(`Files of session '${id}' could not be deleted`, async () => {
      // Includes victims whose files were still being written when `delete` was called.
      for (const one of new Set([...names, ...victims()])) {
        await this.#remove(one);
        this.#deleted.delete(one);
      }
    });
    return found;
  }

  /** Resolves when the session's file is not being written. */
  async written({ id, tenant }: Omit<SessionName, "named">): Promise<void> {
    const name = fileNameOf(id, saltOf(tenant));
    if (this.#writes((file) => file.name === name)) await this.#queue;
  }

  /** Resolves when everything queued so far is done. */
  async settled(): Promise<void> {
    await this.#queue;
  }

  /** Moves a written file into place. A crash in between leaves cells without a sidecar; the next start deletes them. */
  async #enter(name: string, sidecar: Sidecar, temporary: string): Promise<void> {
    await this.#remove(name);
    const cells = this.#path(name, "kv");
    try {
      await rename(temporary, cells);
      const text = formatSidecar(sidecar);
      const draft = this.#path(name, "json.tmp");
      await writeFile(draft, text, { mode: 0o600 });
      await rename(draft, this.#path(name, "json"));
      const { size } = await stat(cells);
      this.#bytesPerToken = Math.max(1, size / Math.max(1, tokensIn(sidecar)));
      this.#add({ ...sidecar, name, bytes: size + text.length });
      this.writes++;
    } catch (cause) {
      await this.#remove(name);
      throw cause;
    }
    for (const oldest of this.#files.keys()) {
      if (this.#bytes <= this.options.bytes) break;
      await this.#remove(oldest);
    }
  }

  async #cells(
    file: File,
    engine: EnginePort,
  ): Promise<{ readonly sequence: SequencePort; readonly spans: readonly Span[] }> {
    let sequence: SequencePort | undefined;
    try {
      sequence = await engine.load(this.#path(file.name, "kv"));
      const tokens = sequence.tokens();
      if (tokens.length !== tokensIn(file)) throw new Error("the sidecar has a different number of tokens");
      return { sequence, spans: spansIn(file, tokens) };
    } catch (cause) {
      sequence?.release();
      // A full pool does not mean that the file is damaged.
      if ((cause as { code?: unknown }).code !== "CACHE_FULL") await this.#remove(file.name);
      throw cause;
    }
  }

  async #remove(name: string): Promise<void> {
    const file = this.#files.get(name);
    if (file) this.#bytes -= file.bytes;
    this.#files.delete(name);
    // The sidecar first: a crash then leaves cells without a sidecar, which the next start deletes.
    for (const kind of ["json", "json.tmp", "kv"]) await rm(this.#path(name, kind), { force: true });
  }

  #writes(is: (file: Sidecar & { readonly name: string }) => boolean): boolean {
    return Array.from(this.#writing).some(is);
  }

  #add(file: File): void {
    this.#files.set(file.name, file);
    this.#bytes += file.bytes;
  }

  #path(name: string, kind: string): string {
    return join(this.options.folder, `${name}.${kind}`);
  }

  /** Runs after everything queued before. A failure is logged with `complaint` in front. */
  #enqueue(complaint: string, operation: () => Promise<void>): Promise<void> {
    const done = this.#queue
      .then(operation)
      .catch((cause: unknown) => this.options.log(`${complaint}: ${messageOf(cause)}`));
    this.#queue = done;
    return done;
  }
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
