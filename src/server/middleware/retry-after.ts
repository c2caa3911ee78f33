// The Retry-After header: an estimate from the length of the queue and the recent serving times, in whole seconds
// from 1 to 60.
import type { PocketError } from "../../errors.ts";

const longestSeconds = 60;

/** What the estimate is made from. */
export interface QueueLoad {
  readonly active: number;
  readonly queued: number;
  /** Moving average of the time that a request is served; 0 before the first one ended. */
  readonly averageServedMs: number;
  /** Requests that are served at the same time. */
  readonly limit: number;
}

/** Undefined for errors that waiting does not help. */
export function retryAfter({ status, code }: PocketError, load: QueueLoad): number | undefined {
  if (status !== 429 && status !== 503) return undefined;
  // The pool does not grow, so clients that retry should do it rarely.
  if (code === "CACHE_TOO_SMALL") return longestSeconds;
  const perRequestMs = load.averageServedMs / Math.max(1, load.limit);
  const requests = code === "QUEUE_FULL" ? load.queued + 1 : 1;
  return Math.min(longestSeconds, Math.max(1, Math.ceil((requests * perRequestMs) / 1000)));
}
