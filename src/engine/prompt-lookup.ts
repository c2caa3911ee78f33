// Prompt lookup decoding (Saxena 2023) for one answer: the tokens that followed the last n-gram earlier in the text are
// the draft of the next ones. The draft length maximises the expected tokens per time, from the acceptance rate by
// match length and the cost of rows (row-costs.ts). Verification is the sampler's: each row is sampled with the draw
// that its token has without a draft, so a draft token is accepted if it equals the sampled one.
import { maxMatch, minMatch, NgramIndex } from "./ngram-index.ts";
import type { RowCosts } from "./row-costs.ts";

/** Draft tokens in one step; further rows cost what they gain on the machines measured (bench/README.md). */
export const maxDraftTokens = 16;
/** Expected speedup that a step with a draft must have; the estimate's own error is of this size. */
const minGain = 1.05;
/** Largest number of queries without a draft between two probes of a match length that does not pay. */
const maxBackoff = 64;
/** Factor by which the weight of earlier observations falls at each new one. */
const decay = 0.85;

/** Acceptance of drafts of one match length. */
interface Acceptance {
  /** Decayed counts of draft tokens. */
  accepted: number;
  tested: number;
  /** Queries to skip before the next probe, and how many it will be after that. */
  skip: number;
  nextSkip: number;
}

export class PromptLookup {
  readonly #text = new NgramIndex();
  /** By match length, from minMatch on. The prior acceptance grows with the length. */
  readonly #acceptance: Acceptance[] = Array.from({ length: maxMatch - minMatch + 1 }, (_, index) => ({
    accepted: 0.25 + 0.1 * index,
    tested: 1,
    skip: 0,
    nextSkip: 1,
  }));
  #match = minMatch;

  /** `tokens`: the whole text up to and including the token that the next step computes. */
  constructor(tokens: Int32Array) {
    for (const token of tokens) this.#text.push(token);
  }

  push(token: number): void {
    this.#text.push(token);
  }

  /** At most `limit` draft tokens for a step that computes `rows` rows without them. Often none. */
  draft(limit: number, rows: number, costs: RowCosts): Int32Array {
    const found = this.#text.find(Math.min(limit, maxDraftTokens));
    if (!found) return none;
    this.#match = found.match;
    const acceptance = this.#acceptance[found.match - minMatch]!;
    const count = bestCount(acceptance.accepted / acceptance.tested, found.tokens.length, rows, costs);
    if (count > 0) return found.tokens.subarray(0, count);
    if (acceptance.skip-- > 0) return none;
    acceptance.skip = acceptance.nextSkip;
    acceptance.nextSkip = Math.min(2 * acceptance.nextSkip, maxBackoff);
    return found.tokens.subarray(0, 1);
  }

  /** Of the last draft `drafted` tokens were computed and `accepted` were accepted. */
  learn(drafted: number, accepted: number): void {
    if (drafted === 0) return;
    const acceptance = this.#acceptance[this.#match - minMatch]!;
    // Tokens behind the first rejected one were not tested.
    acceptance.accepted = acceptance.accepted * decay + accepted;
    acceptance.tested = acceptance.tested * decay + Math.min(accepted + 1, drafted);
    if (accepted > 0) acceptance.nextSkip = 1;
  }
}

const none = new Int32Array(0);

/** Draft length of most tokens per time; `rate`: probability that a token is accepted if those before it were. */
function bestCount(rate: number, limit: number, rows: number, costs: RowCosts): number {
  let best = 0;
  let bestSpeed = rows * minGain;
  let expected = rows;
  for (let count = 1, all = rate; count <= limit; count++, all *= rate) {
    expected += all;
    const speed = expected / costs.ratio(count);
    if (speed > bestSpeed) {
      best = count;
      bestSpeed = speed;
    }
  }
  return best;
}
