// Who computes how many tokens in the next step. Pure: it sees counts, not sequences.
//
// Decodes come first, one token each, so that a running stream never waits for somebody's prompt. What the
// token budget leaves is shared evenly between waiting prompts; what a short prompt does not need goes to the
// others, so a short question is answered after one step even while a long prompt is being read. Where the
// budget is too small for a tile each, prompts take turns, the one served longest ago first. Background work
// is planned only when nobody else has any.

/** What a task still has to compute. */
export interface Demand {
  /** Tokens that have cells but no keys yet; at least 1. */
  readonly pending: number;
  /** True once the task has sampled a token: its pending token is the last sampled one. */
  readonly decoding: boolean;
  /** Rows that a decode computes beside its own. */
  readonly draftTokens?: number;
  readonly background?: boolean;
  /** Number of the step that last computed something of it; 0 for none. */
  readonly servedAt?: number;
}

/** Prompts make progress even when decodes alone use up the budget; fewer tokens in a step are not worth one. */
export const minPromptTokens = 16;

/** Tokens per demand, in the order given; 0 waits for a later step. At least one is positive. */
export function planStep(demands: readonly Demand[], budget: number): number[] {
  const shares = demands.map(() => 0);
  const places = demands.map((_, place) => place);
  const foreground = places.filter((place) => !demands[place]!.background);
  const served = foreground.length > 0 ? foreground : places;
  let left = budget;
  for (const place of served) {
    if (!demands[place]!.decoding) continue;
    shares[place] = 1;
    left -= 1 + (demands[place]!.draftTokens ?? 0);
  }
  left = Math.max(left, minPromptTokens);
  // Smallest demand first: what it leaves of its even share is known before the larger ones take theirs.
  const turn = promptsOfTurn(demands, served, left).sort((a, b) => demands[a]!.pending - demands[b]!.pending);
  for (const [rank, place] of turn.entries()) {
    shares[place] = Math.min(demands[place]!.pending, Math.ceil(left / (turn.length - rank)));
    left -= shares[place];
  }
  return shares;
}

/** The prompts that `left` tokens go to: as many as get a tile each, or all they need. */
function promptsOfTurn(demands: readonly Demand[], served: readonly number[], left: number): number[] {
  const waiting = served
    .filter((place) => !demands[place]!.decoding)
    .sort((a, b) => (demands[a]!.servedAt ?? 0) - (demands[b]!.servedAt ?? 0) || a - b);
  let room = left;
  return waiting.filter((place) => {
    const chosen = room > 0;
    room -= Math.min(demands[place]!.pending, minPromptTokens);
    return chosen;
  });
}
