// The context's queue: so many requests are served at once, so many more may wait, the next one is turned away
// with 429. It counts requests, not tokens; which sequence computes when is the engine's business.
import { pocketError } from "../../errors.ts";
import type { QueueLoad } from "./retry-after.ts";

/** Weight of the newest request in the average time that a place is held. */
const newest = 0.2;

export class Admission {
  private active = 0;
  private averageServedMs = 0;
  private readonly waiting: (() => void)[] = [];

  constructor(
    private readonly activeLimit: number,
    private readonly queueLimit: number,
  ) {}

  /**
   * Resolves, in order of arrival, with a function that gives the place back (idempotent). Rejects with
   * QUEUE_FULL at once, or with the signal's reason when it aborts while waiting.
   */
  async enter(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.active < this.activeLimit) this.active++;
    else await this.wait(signal);
    const enteredAt = performance.now();
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.remember(performance.now() - enteredAt);
      this.leave();
    };
  }

  get pace(): QueueLoad {
    return { ...this.counts, averageServedMs: this.averageServedMs, limit: this.activeLimit };
  }

  get counts(): { active: number; queued: number } {
    return { active: this.active, queued: this.waiting.length };
  }

  private wait(signal: AbortSignal): Promise<void> {
    if (this.waiting.length >= this.queueLimit) throw pocketError("QUEUE_FULL", this.waiting.length);
    return new Promise((resolve, reject) => {
      const turn = () => {
        signal.removeEventListener("abort", giveUp);
        resolve();
      };
      const giveUp = () => {
        this.waiting.splice(this.waiting.indexOf(turn), 1);
        reject(signal.reason);
      };
      signal.addEventListener("abort", giveUp, { once: true });
      this.waiting.push(turn);
    });
  }

  private remember(ms: number): void {
    this.averageServedMs =
      this.averageServedMs === 0 ? ms : newest * ms + (1 - newest) * this.averageServedMs;
  }

  /** The place goes to the first in the queue without becoming free in between. */
  private leave(): void {
    const next = this.waiting.shift();
    if (next === undefined) this.active--;
    else next();
  }
}
