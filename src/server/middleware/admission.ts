// Admission: limits the requests that are served at once and those that wait; a further one gets 429. It counts
// requests, not tokens; the engine's scheduler decides what is computed in each step.
import { pocketError } from "../../errors.ts";
import type { QueueLoad } from "./retry-after.ts";

/** Weight of the newest request in the moving average of serving times. */
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
   * Resolves in order of arrival with a function that ends the request (idempotent). Rejects with QUEUE_FULL at
   * once, or with the signal's reason when it aborts in the queue.
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

  get load(): QueueLoad {
    return { ...this.counts, averageServedMs: this.averageServedMs, limit: this.activeLimit };
  }

  get counts(): { active: number; queued: number } {
    return { active: this.active, queued: this.waiting.length };
  }

  private wait(signal: AbortSignal): Promise<void> {
    if (this.waiting.length >= this.queueLimit) throw pocketError("QUEUE_FULL", this.waiting.length);
    return new Promise((resolve, reject) => {
      const admit = () => {
        signal.removeEventListener("abort", onAbort);
        resolve();
      };
      const onAbort = () => {
        this.waiting.splice(this.waiting.indexOf(admit), 1);
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.waiting.push(admit);
    });
  }

  private remember(ms: number): void {
    this.averageServedMs =
      this.averageServedMs === 0 ? ms : newest * ms + (1 - newest) * this.averageServedMs;
  }

  /** Admits the first in the queue; `active` stays the same, so that a new arrival cannot overtake it. */
  private leave(): void {
    const next = this.waiting.shift();
    if (next === undefined) this.active--;
    else next();
  }
}
