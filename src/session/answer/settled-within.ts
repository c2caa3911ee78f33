// Waits a bounded time for an event that may be an early failure. Used before the first event of an answer is sent.

/** Rejects if `promise` rejects within `ms`. Otherwise resolves, at the latest after `ms`; the promise stays usable. */
export async function settledWithin(promise: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
