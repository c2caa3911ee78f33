// Forms the batch of the next step: how many tokens each task computes (continuous batching with chunked prefill).
// Pure: it sees counts, not sequences.
//
// Decodes come first, one token each, so that a stream never waits for a prompt. The rest of the token budget is
// shared evenly between the waiting prompts; what a short prompt does not need is given to the others, so a short
// question is answered after one step even while a long prompt is read. Where the budget is too small for
// minPromptTokens each, prompts alternate, least recently served first. Background tasks are scheduled only when no
// foreground task has tokens to compute.

/** What a task still has to compute. */
export interface Demand {
  /** Tokens that have cells but no keys yet; at least 1. */
  readonly pending: number;
  /** True once the task has sampled a token: its pending token is the last sampled one. */
  readonly decoding: boolean;
  /** Draft rows that a decode computes on top of its own. */
  readonly draftTokens?: number;
  readonly background?: boolean;
  /** Number of the last step that computed tokens of it; 0 for none. */
  readonly servedAt?: number;
}

/** Minimum of prompt tokens in a step, also when the decodes alone use up the budget: prompts always progress. */
export const minPromptTokens = 16;

/** Tokens per demand, in the order given; 0 waits for a later step. At least one is positive. */
export function planStep(demands: readonly Demand[], budget: number): number[] {
  const shares = demands.map(() => 0);
  const all = demands.map((_, index) => index);
  const foreground = all.filter((index) => !demands[index]!.background);
  const served = foreground.length > 0 ? foreground : all;
  let left = budget;
  for (const index of served) {
    if (!demands[index]!.decoding) continue;
    shares[index] = 1;
    left -= 1 + (demands[index]!.draftTokens ?? 0);
  }
  left = Math.max(left, minPromptTokens);
  // Smallest demand first: what it leaves of its even share is known before the larger ones take theirs.
  const prompts = scheduledPrompts(demands, served, left).sort(
    (a, b) => demands[a]!.pending - demands[b]!.pending,
  );
  for (const [rank, index] of prompts.entries()) {
    shares[index] = Math.min(demands[index]!.pending, Math.ceil(left / (prompts.length - rank)));
    left -= shares[index];
  }
  return shares;
}

/** The prompts that share `left` tokens: as many as get minPromptTokens each, or all that they need. */
function scheduledPrompts(demands: readonly Demand[], served: readonly number[], left: number): number[] {
  const waiting = served
    .filter((index) => !demands[index]!.decoding)
    .sort((a, b) => (demands[a]!.servedAt ?? 0) - (demands[b]!.servedAt ?? 0) || a - b);
  let tokens = left;
  return waiting.filter((index) => {
    const chosen = tokens > 0;
    tokens -= Math.min(demands[index]!.pending, minPromptTokens);
    return chosen;
  });
}
