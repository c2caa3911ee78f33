// Limits of the context window and the pool, checked before a job starts. Whether pages are free now is decided by the
// engine.
import type { EnginePort } from "../engine/job.ts";
import { pocketError } from "../errors.ts";

/**
 * Tokens that the answer may have: as requested, limited by the rest of the window and of the whole pool. Throws
 * CONTEXT_LENGTH_EXCEEDED if the prompt leaves no token in the window, CACHE_TOO_SMALL if it leaves none in the pool.
 */
export function answerLength(
  { context, capacity }: Pick<EnginePort, "context" | "capacity">,
  promptTokens: number,
  maxTokens: number | undefined,
): number {
  const minTokens = maxTokens === 0 ? 0 : 1;
  if (promptTokens + minTokens > context) {
    const completion = maxTokens ?? minTokens;
    throw pocketError(
      "CONTEXT_LENGTH_EXCEEDED",
      context,
      promptTokens + completion,
      `${promptTokens} in the messages, ${completion} in the completion`,
    );
  }
  if (promptTokens + minTokens > capacity) {
    throw pocketError("CACHE_TOO_SMALL", promptTokens + minTokens, capacity);
  }
  return Math.min(maxTokens ?? Number.POSITIVE_INFINITY, context - promptTokens, capacity - promptTokens);
}
