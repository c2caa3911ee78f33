// How long a client that was turned away should wait, as Retry-After: from the queue at the context and how long
// places have been held of late. An estimate, never a promise; whole seconds, from 1 to a minute.
import type { PocketError } from "../../errors.ts";

const longestSeconds = 60;

/** What the context knows about its own pace. */
export interface QueueLoad {
  readonly active: number;
  readonly queued: number;
  /** Milliseconds a place is held, a moving average; 0 before the first was given back. */
  readonly averageServedMs: number;
  /** Places. */
  readonly limit: number;
}

/** Undefined where waiting is not what the error asks for. */
export function retryAfter({ status, code }: PocketError, pace: QueueLoad): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  // The pool does not grow by waiting; a client that insists should at least insist rarely.
  if (code === "CACHE_TOO_SMALL") return longestSeconds;
  const turnMs = pace.averageServedMs / Math.max(1, pace.limit);
  const ahead = code === "QUEUE_FULL" ? pace.queued + 1 : 1;
  return Math.min(longestSeconds, Math.max(1, Math.ceil((ahead * turnMs) / 1000)));
}
