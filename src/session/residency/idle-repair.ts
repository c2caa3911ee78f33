// Idle repair: while the engine is idle, relocated cells are recomputed a few at a time until sessions are exact. Each
// piece is computed in a fork that replaces the session's cells when it is complete. A request that arrives meanwhile
// finds the session unchanged and waits for one step at most.
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
  /** The next cells to repair; undefined: none. */
  readonly next: () => IdleWork | undefined;
  /** Called after the session's cells were replaced. */
  readonly repaired: (session: Session) => void;
  readonly log: (line: string) => void;
  /** Milliseconds without a request before repair begins. */
  readonly delayMs: number;
}

export class IdleRepair {
  repairedTokens = 0;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #stop = new AbortController();
  #closed = false;

  constructor(private readonly options: IdleOptions) {}

  /** Call when the last request has ended. */
  wake(): void {
    if (this.#closed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#start(), this.options.delayMs).unref();
  }

  /** Call when a request arrives: aborts the running piece. */
  pause(): void {
    clearTimeout(this.#timer);
    this.#stop.abort();
  }

  /** Resolves when no job of idle repair is in the engine. */
  async close(): Promise<void> {
    this.#closed = true;
    this.pause();
    await this.#running;
  }

  #start(): void {
    if (this.#running) {
      // The piece that was aborted has not left the engine yet.
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

  /** False: stop until the next `wake`. */
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
