// Frees pages: evicts the next entry of the retention list until the requested tokens fit. An evicted session or
// victim is written to disk if there is a disk tier; its pages are free once the file is written. Busy sessions are
// never evicted.
import { randomUUID } from "node:crypto";
import type { EnginePort } from "../../engine/job.ts";
import type { DiskTier } from "../disk/disk-tier.ts";
import type { EvictionReasons } from "./eviction-reasons.ts";
import { keyOf, type Residents } from "./residents.ts";
import type { Session, Version } from "./session.ts";

/** Fewer tokens are computed faster than a file is read. */
const minOnDisk = 64;

export class Evictor {
  /** Sessions evicted to free pages or because there were too many. */
  evictions = 0;
  /** Files being written; their pages become free when they settle. */
  readonly #writing = new Set<Promise<void>>();
  /** Called when a busy session has ended. */
  readonly #waiting: (() => void)[] = [];

  constructor(
    private readonly engine: Pick<EnginePort, "tokensFree">,
    private readonly residents: Residents,
    private readonly reasons: EvictionReasons,
    private readonly disk: DiskTier | undefined,
  ) {}

  /** Evicts until `tokens` more fit or nothing is idle. An estimate; the engine may still refuse. */
  async reserve(tokens: number, spared?: Session): Promise<void> {
    // During a step, released pages become free only at its end; they are counted here.
    let pending = 0;
    while (this.engine.tokensFree + pending < tokens) {
      const free = this.engine.tokensFree;
      const evicted = this.evict(spared);
      if (evicted === 0 && this.#writing.size === 0) return;
      await this.written();
      if (this.engine.tokensFree === free) pending += evicted;
    }
  }

  /**
   * After a refusal: evicts one entry and waits until its pages are free; if nothing is idle, waits for a busy session
   * to end. False: neither is possible. Sessions that wait here do not wait for each other. Returns early when the
   * signal fires.
   */
  async freePages(session: Session, signal: AbortSignal): Promise<boolean> {
    if (this.evict() > 0 || this.#writing.size > 0) {
      await this.written();
      return true;
    }
    const others = this.residents.sessions().filter((other) => other !== session);
    if (!others.some(({ busy, waiting }) => busy && !waiting)) return false;
    await session.waitFor(this.#sessionEnd(signal));
    return true;
  }

  #sessionEnd(signal: AbortSignal): Promise<void> {
    return new Promise<void>((resolve) => {
      const wake = () => {
        signal.removeEventListener("abort", wake);
        resolve();
      };
      this.#waiting.push(wake);
      signal.addEventListener("abort", wake);
    });
  }

  /** A busy session has ended: wakes the requests that wait for pages. */
  wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Evicts the next entry. Returns its tokens; 0: nothing is idle. Its pages may become free later (`written`). */
  evict(spared?: Session): number {
    const entry = this.residents.retained.next(spared);
    if (!entry) return 0;
    const { length } = entry.version.sequence;
    if (entry.kind === "session") {
      this.evictions++;
      this.evictSession(entry.session, "had gone to make room");
    } else {
      if (entry.kind === "victim") this.#writeVictim(entry.session, entry.version);
      this.residents.drop(entry);
    }
    return Math.max(1, length);
  }

  /** Evicts idle sessions until there are at most `maxSessions`. */
  limitSessions(maxSessions: number): void {
    while (this.residents.size > maxSessions) {
      const session = this.residents.sessions().find(({ busy }) => !busy);
      if (!session) return;
      this.evictions++;
      this.evictSession(session, "had gone, being one too many");
    }
  }

  /** Removes an idle session: its system prompt may stay cached, its cells go to disk. */
  evictSession(session: Session, reason: string): void {
    for (const version of this.residents.victimsOf(session)) this.#writeVictim(session, version);
    this.residents.remove(session);
    this.reasons.set(keyOf(session.id, session.tenant), reason);
    this.residents.keepPrefix(session);
    if (!session.saved) {
      const keys = this.residents.index.keysOf(session.tenant, session.exactTokens);
      this.#write((disk) => disk.save(session, session, keys, session.usedAt), session);
    }
    session.release();
  }

  /** Writes a victim to disk if there is a disk tier. The caller releases the victim. */
  #writeVictim({ id, named, tenant }: Session, version: Version): void {
    const name = { id: `${id} ${randomUUID()}`, named, tenant };
    this.#write((disk) => disk.save(name, version, [], Date.now(), id), version);
  }

  #write(save: (disk: DiskTier) => Promise<void>, { sequence }: Version): void {
    if (!this.disk || sequence.length < minOnDisk) return;
    const writing = save(this.disk).finally(() => {
      this.#writing.delete(writing);
    });
    this.#writing.add(writing);
  }

  /** Resolves when the pages of everything evicted so far are free. */
  async written(): Promise<void> {
    await Promise.all(this.#writing);
  }
}
