// Sessions on disk: the cells of one that had to go are written once, and come back by reading instead of
// computing. A cache, never the only copy of anything: whatever fails here is a line in the log, and the session
// is computed again. One folder belongs to one model and one process. What is in a file of cells is the engine's.
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { EnginePort, SequencePort } from "../engine/job.ts";
import { type Span, spanOf } from "../text/span.ts";
import { saltOf } from "./prefixes.ts";
import type { SessionName, Version } from "./session.ts";
import { fileNameOf, formatSidecar, markChunks, marksOf, parseSidecar, type Sidecar } from "./sidecar.ts";

export interface DiskOptions {
  readonly folder: string;
  /** Bytes that the files may take. */
  readonly bytes: number;
  readonly log: (line: string) => void;
}

interface File extends Sidecar {
  readonly name: string;
  /** Of the cells and the sidecar. */
  readonly bytes: number;
}

export type Loaded = Omit<Version, "exactLength">;

const ours = /^([\w-]{32})\.(kv|json)(\..*)?$/;

export class DiskTier {
  hits = 0;
  writes = 0;
  /** Least recently used first. */
  readonly #files = new Map<string, File>();
  #bytes = 0;
  /** Acts follow each other: one disk, and no file is read while it is replaced. */
  #acts: Promise<unknown> = Promise.resolve();
  /** Files that are being written, or wait for it, and how often. */
  readonly #writing = new Map<string, number>();
  /** Files that are as good as deleted. */
  readonly #doomed = new Set<string>();
  #bytesPerToken = 0;
  #saves = 0;

  private constructor(private readonly options: DiskOptions) {}

  /** Reads what an earlier process left. Undefined, with a line in the log: the folder cannot be used. */
  static open(options: DiskOptions): DiskTier | undefined {
    const tier = new DiskTier(options);
    try {
      mkdirSync(options.folder, { recursive: true, mode: 0o700 });
      const probe = join(options.folder, ".probe");
      writeFileSync(probe, "");
      rmSync(probe);
      tier.#read();
    } catch (cause) {
      options.log(`No session is kept on disk: ${options.folder} cannot be used (${messageOf(cause)}).`);
      return undefined;
    }
    return tier;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Tokens of the session's file; 0: there is none. */
  has({ id, tenant }: Omit<SessionName, "named">): number {
    const name = fileNameOf(id, saltOf(tenant));
    const file = this.#doomed.has(name) ? undefined : this.#files.get(name);
    return file ? tokensIn(file) : 0;
  }

  /** The file that shares most exact chunks with a prompt whose chunks have these names. */
  match(keys: readonly string[]): { readonly id: string; readonly chunks: number } | undefined {
    const marks = marksOf(keys);
    let best: { readonly id: string; readonly chunks: number } | undefined;
    for (const file of this.#files.values()) {
      if (this.#doomed.has(file.name)) continue;
      let shared = 0;
      while (shared < marks.length && file.marks[shared] === marks[shared]) shared++;
      if (shared > 0 && shared * markChunks >= (best?.chunks ?? 0)) {
        best = { id: file.id, chunks: shared * markChunks };
      }
    }
    return best;
  }

  /**
   * Begins to write the cells before it returns, so that the caller may release them at once. Resolves, in any
   * case, when their pages are not needed any more. `keys`: names of exact chunks.
   */
  async keep(name: SessionName, version: Version, keys: readonly string[], usedAt: number): Promise<void> {
    const salt = saltOf(name.tenant);
    const file = fileNameOf(name.id, salt);
    const { sequence, spans, relocated } = version;
    if (sequence.length * this.#bytesPerToken > this.options.bytes) return;
    const sidecar: Sidecar = {
      id: name.id,
      named: name.named,
      salt,
      spans: spans.map(({ role, tokens }) => ({ role, count: tokens.length })),
      relocated,
      marks: marksOf(keys),
      usedAt,
    };
    this.#writing.set(file, (this.#writing.get(file) ?? 0) + 1);
    this.#doomed.delete(file);
    const temporary = this.#path(file, `kv.${this.#saves++}`);
    const saving = sequence.save(temporary);
    void this.#act(`Session '${name.id}' could not be written to disk`, async () => {
      try {
        await saving;
        await this.#enter(file, sidecar, temporary);
      } finally {
        const left = this.#writing.get(file)! - 1;
        if (left > 0) this.#writing.set(file, left);
        else this.#writing.delete(file);
        await rm(temporary, { force: true });
      }
    });
    await saving.catch(() => undefined);
  }

  /** The session's cells as they were; undefined: they are not to be had, and the file is gone. */
  async load(
    { id, tenant }: Omit<SessionName, "named">,
    engine: EnginePort,
  ): Promise<(Loaded & SessionName) | undefined> {
    const name = fileNameOf(id, saltOf(tenant));
    let loaded: (Loaded & SessionName) | undefined;
    await this.#act(`Session '${id}' could not be read from disk and is computed again`, async () => {
      const file = this.#files.get(name);
      if (!file || !engine.load) return;
      const cells = await this.#cells(file, engine);
      this.#files.delete(name);
      this.#files.set(name, file);
      this.hits++;
      loaded = { id, tenant, named: file.named, relocated: file.relocated, ...cells };
    });
    return loaded;
  }

  /** False: there was nothing. They are gone when `settled` resolves. */
  delete({ id, tenant }: Omit<SessionName, "named">): boolean {
    const name = fileNameOf(id, saltOf(tenant));
    if (this.#doomed.has(name) || !(this.#files.has(name) || this.#writing.has(name))) return false;
    this.#doomed.add(name);
    void this.#act(`Files of session '${id}' could not be deleted`, async () => {
      await this.#remove(name);
      this.#doomed.delete(name);
    });
    return true;
  }

  /** Resolves when the session is not being written any more. */
  async written({ id, tenant }: Omit<SessionName, "named">): Promise<void> {
    if (this.#writing.has(fileNameOf(id, saltOf(tenant)))) await this.#acts;
  }

  /** Resolves when everything asked for until now is done. */
  async settled(): Promise<void> {
    await this.#acts;
  }

  /** A crash in between leaves cells without a sidecar, which the next start deletes. */
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
      sequence = await engine.load!(this.#path(file.name, "kv"));
      const tokens = sequence.tokens!();
      if (tokens.length !== tokensIn(file)) throw new Error("its sidecar tells another number of tokens");
      return { sequence, spans: spansOf(file, tokens) };
    } catch (cause) {
      sequence?.release();
      // A full pool says nothing against the file.
      if ((cause as { code?: unknown }).code !== "CACHE_FULL") await this.#remove(file.name);
      throw cause;
    }
  }

  async #remove(name: string): Promise<void> {
    const file = this.#files.get(name);
    if (file) this.#bytes -= file.bytes;
    this.#files.delete(name);
    // The sidecar first: cells without one are nobody's.
    for (const kind of ["json", "json.tmp", "kv"]) await rm(this.#path(name, kind), { force: true });
  }

  #add(file: File): void {
    this.#files.set(file.name, file);
    this.#bytes += file.bytes;
  }

  #read(): void {
    const names = new Set<string>();
    for (const entry of readdirSync(this.options.folder)) {
      const [, name, kind, rest] = ours.exec(entry) ?? [];
      if (name && kind && !rest) names.add(name);
      // What was being written when a process ended.
      else if (name) rmSync(join(this.options.folder, entry), { force: true });
    }
    const files = Array.from(names).flatMap((name) => this.#readOne(name) ?? []);
    for (const file of files.sort((a, b) => a.usedAt - b.usedAt)) this.#add(file);
  }

  #readOne(name: string): File | undefined {
    try {
      const text = readFileSync(this.#path(name, "json"), "utf8");
      const { size } = statSync(this.#path(name, "kv"));
      const sidecar = parseSidecar(text);
      if (sidecar && fileNameOf(sidecar.id, sidecar.salt) === name) {
        return { ...sidecar, name, bytes: size + text.length };
      }
    } catch {
      // One of the two is missing or cannot be read: neither is of use.
    }
    for (const kind of ["json", "kv"]) rmSync(this.#path(name, kind), { force: true });
    return undefined;
  }

  #path(name: string, kind: string): string {
    return join(this.options.folder, `${name}.${kind}`);
  }

  #act(complaint: string, act: () => Promise<void>): Promise<void> {
    const done = this.#acts
      .then(act)
      .catch((cause: unknown) => this.options.log(`${complaint}: ${messageOf(cause)}`));
    this.#acts = done;
    return done;
  }
}

function tokensIn({ spans }: Pick<Sidecar, "spans">): number {
  return spans.reduce((sum, { count }) => sum + count, 0);
}

function spansOf({ spans }: Pick<Sidecar, "spans">, tokens: Int32Array): Span[] {
  let at = 0;
  return spans.map(({ role, count }) => {
    at += count;
    return spanOf(role, tokens.slice(at - count, at));
  });
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
