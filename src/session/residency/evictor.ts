// Room in the pool and among sessions: what goes, in which order, and where to. Versions before an edit go
// first, then the remains of edits, then idle sessions, least recently used first, then what sessions that went began with. A session that
// goes is written to disk where there is one, and its pages come back when it is. It chooses nothing that is busy.
import { randomUUID } from "node:crypto";
import type { EnginePort } from "../../engine/job.ts";
import type { DiskTier } from "../disk/disk-tier.ts";
import type { EvictionReasons } from "./eviction-reasons.ts";
import { keyOf, type Residents } from "./residents.ts";
import type { Session, Version } from "./session.ts";

/** Fewer tokens are computed again sooner than a file is read. */
const minOnDisk = 64;

export class Evictor {
  /** Sessions let go of to make room in the pool or among each other. */
  evictions = 0;
  /** Sessions that are being written to disk, whose pages come back then. */
  readonly #departing = new Set<Promise<void>>();
  /** Called when a working session has ended. */
  readonly #waiting: (() => void)[] = [];

  constructor(
    private readonly engine: Pick<EnginePort, "tokensFree">,
    private readonly residents: Residents,
    private readonly graves: EvictionReasons,
    private readonly disk: DiskTier | undefined,
  ) {}

  /** Lets go of what is idle until `tokens` more fit, or nothing is left. An estimate: the engine has the last word. */
  async reserve(tokens: number, spared?: Session): Promise<void> {
    // During a step what is released comes back only at its end: it is counted here.
    let coming = 0;
    while (this.engine.tokensFree + coming < tokens) {
      const free = this.engine.tokensFree;
      const gone = this.evict(spared);
      if (gone === 0 && this.#departing.size === 0) return;
      await this.departed();
      if (this.engine.tokensFree === free) coming += gone;
    }
  }

  /** After a refusal: lets go of one thing that is idle and waits until its pages are back. False: there is none. */
  async relieve(): Promise<boolean> {
    if (this.evict() === 0 && this.#departing.size === 0) return false;
    await this.departed();
    return true;
  }

  /**
   * For a session whose request was refused: lets go of something idle; else waits for a working session to end.
   * False: neither is to be had. Two that wait for room do not wait for each other. Returns early when the signal
   * fires.
   */
  async find(session: Session, signal: AbortSignal): Promise<boolean> {
    if (await this.relieve()) return true;
    const working = Array.from(this.residents.values()).some(
      (other) => other !== session && other.busy && !other.waiting,
    );
    if (!working) return false;
    session.waiting = true;
    await new Promise<void>((resolve) => {
      const wake = () => {
        signal.removeEventListener("abort", wake);
        resolve();
      };
      this.#waiting.push(wake);
      signal.addEventListener("abort", wake);
    });
    session.waiting = false;
    return true;
  }

  /** A working session has ended. */
  wake(): void {
    for (const wake of this.#waiting.splice(0)) wake();
  }

  /** Tokens of what goes; 0: nothing is idle. Its pages may come back later, when they are on disk. */
  evict(spared?: Session): number {
    const previous = this.residents.dropOldestPrevious();
    if (previous > 0) return previous;
    const remains = this.residents.takeOldestRemains();
    if (remains) {
      const { length } = remains.version.sequence;
      this.#shelve(remains.session, remains.version);
      remains.version.sequence.release();
      return Math.max(1, length);
    }
    const session = this.residents.oldestIdle(spared);
    if (!session) return this.residents.dropOldestLead();
    const { length } = session.sequence;
    this.evictions++;
    this.depart(session, "had gone to make room");
    return Math.max(1, length);
  }

  /** Lets idle sessions go until there are at most `max`. */
  shrink(max: number): void {
    while (this.residents.size > max) {
      const session = this.residents.oldestIdle();
      if (!session) return;
      this.evictions++;
      this.depart(session, "had gone, being one too many");
    }
  }

  /** An idle session goes: its leading span stays if it is the only one, the rest to disk. */
  depart(session: Session, why: string): void {
    for (const version of session.victims) this.#shelve(session, version);
    this.residents.remove(session);
    this.graves.set(keyOf(session.id, session.tenant), why);
    this.residents.keepLead(session);
    if (!session.saved) {
      const keys = this.residents.keysOf(session.tenant, session.exactTokens);
      this.#write((disk) => disk.save(session, session, keys, session.usedAt), session);
    }
    session.release();
  }

  /** Remains of the session go to disk, if there is one. They stay the caller's to release. */
  #shelve({ id, named, tenant }: Session, version: Version): void {
    const name = { id: `${id} ${randomUUID()}`, named, tenant };
    this.#write((disk) => disk.save(name, version, [], Date.now(), id), version);
  }

  #write(keep: (disk: DiskTier) => Promise<void>, { sequence }: Version): void {
    if (!this.disk || sequence.length < minOnDisk) return;
    const departing = keep(this.disk).finally(() => {
      this.#departing.delete(departing);
    });
    this.#departing.add(departing);
  }

  /** Resolves when the pages of everything that went are back. */
  async departed(): Promise<void> {
    await Promise.all(this.#departing);
  }
}
