// What a request may ask of the window and of the pool, checked before anything is computed. Pure. Whether the
// pool has room *now* is another question, and the engine's.
import type { EnginePort } from "../engine/job.ts";
import { pocketError } from "../errors.ts";

/**
 * Tokens the answer may have: as asked, clamped to what is left of the window and of the whole pool. Throws
 * CONTEXT_LENGTH_EXCEEDED when the prompt leaves no room in the window for one token, CACHE_TOO_SMALL when it
 * leaves none in the pool.
 */
export function answerLength(
  { context, capacity }: Pick<EnginePort, "context" | "capacity">,
  promptTokens: number,
  maxTokens: number | undefined,
): number {
  const least = maxTokens === 0 ? 0 : 1;
  if (promptTokens + least > context) {
    const completion = maxTokens ?? least;
    throw pocketError(
      "CONTEXT_LENGTH_EXCEEDED",
      context,
      promptTokens + completion,
      `${promptTokens} in the messages, ${completion} in the completion`,
    );
  }
  if (promptTokens + least > capacity) throw pocketError("CACHE_TOO_SMALL", promptTokens + least, capacity);
  return Math.min(maxTokens ?? Number.POSITIVE_INFINITY, context - promptTokens, capacity - promptTokens);
}
