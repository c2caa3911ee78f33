// Who computes how many tokens in the next step. Pure: it sees counts, not sequences.
//
// Decodes come first, one token each, so that a running stream never waits for somebody's prompt. What the
// token budget leaves is shared evenly between the waiting prompts; what a short prompt does not need goes to
// the others, so a short question is answered after one step even while a long prompt is being read.

/** What a task still has to compute. */
export interface Demand {
  /** Tokens that have cells but no keys yet; at least 1. */
  readonly pending: number;
  /** True once the task has sampled a token: its pending token is the last sampled one. */
  readonly decoding: boolean;
}

/** Prompts make progress even when decodes alone use up the budget. */
export const leastPromptTokens = 16;

/** Tokens per demand, in the order given; 0 waits for a later step. At least one is positive. */
export function plan(demands: readonly Demand[], budget: number): number[] {
  const shares = demands.map((demand): number => (demand.decoding ? 1 : 0));
  const decodes = shares.reduce((sum, share) => sum + share, 0);
  let left = Math.max(budget - decodes, leastPromptTokens);
  // Smallest demand first: what it leaves of its even share is known before the larger ones take theirs.
  const prompts = demands
    .map((demand, place) => ({ place, pending: demand.pending, decoding: demand.decoding }))
    .filter((prompt) => !prompt.decoding)
    .sort((a, b) => a.pending - b.pending || a.place - b.place);
  for (const [rank, prompt] of prompts.entries()) {
    const share = Math.min(prompt.pending, Math.ceil(left / (prompts.length - rank)));
    shares[prompt.place] = share;
    left -= share;
  }
  return shares;
}
