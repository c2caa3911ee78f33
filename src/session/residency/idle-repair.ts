// Idle repair: while nobody waits, relocated cells are computed again, a few at a time, until sessions are exact
// (repair.ts says in which order). Each piece is computed in a fork and takes the session's place when it is
// whole, so a request that comes in between finds the session as it was and waits for one step at most. It
// decides neither which session is next nor when the engine is idle: it is told.
import { type EnginePort, greedy } from "../../engine/job.ts";
import { PocketError } from "../../errors.ts";
import { tokensOf } from "../../text/span.ts";
import { countOf, type Range } from "../planner/range.ts";
import type { Session } from "./session.ts";

export interface IdleWork {
  readonly session: Session;
  readonly range: Range;
}

export interface IdleOptions {
  readonly engine: Pick<EnginePort, "busy">;
  /** What is to be repaired next; undefined: nothing. */
  readonly next: () => IdleWork | undefined;
  /** The session has other cells now. */
  readonly repaired: (session: Session) => void;
  readonly log: (line: string) => void;
  /** Milliseconds of quiet before it begins. */
  readonly delayMs: number;
}

export class IdleRepair {
  repairedTokens = 0;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #stop = new AbortController();
  #closed = false;

  constructor(private readonly options: IdleOptions) {}

  /** The last request has ended. */
  wake(): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#start(), this.options.delayMs).unref();
  }

  /** A request has come: what is under way is dropped. */
  pause(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  /** Resolves when nothing of it is in the engine any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.pause();
    await this.#running;
  }

  #start(): void {
    if (this.#running) {
      // The piece that the last request dropped has not left the engine yet.
      this.wake();
      return;
    }
    this.#stop = new AbortController();
    this.#running = this.#run(this.#stop.signal).finally(() => {
      this.#running = undefined;
    });
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !this.options.engine.busy) {
      const work = this.options.next();
      if (!work || !(await this.#repair(work, signal))) return;
    }
  }

  /** False: no more for now. */
  async #repair({ session, range }: IdleWork, signal: AbortSignal): Promise<boolean> {
    const source = session.sequence;
    const { start, end } = range;
    const tokens = tokensOf(session.spans).slice(start, end);
    const fork = source.fork(source.length);
    try {
      const splices = [{ start, end, tokens }];
      const job = { splices, sampling: greedy, maxTokens: 0, stopTokens: new Set<number>(), top: 0, signal };
      await fork.run({ ...job, background: true }).next();
    } catch (cause) {
      fork.release();
      const expected = cause instanceof PocketError && ["CANCELLED", "CACHE_FULL"].includes(cause.code);
      if (!expected) this.options.log(`Idle repair stopped: ${(cause as Error).message}`);
      return false;
    }
    if (session.busy || session.sequence !== source || source.released) {
      fork.release();
      return false;
    }
    session.repaired(fork, range);
    this.repairedTokens += countOf([range]);
    this.options.repaired(session);
    return true;
  }
}
