// Prompt lookup for one answer (Saxena 2023, prompt lookup decoding): what followed the last tokens when they stood in
// the text before is proposed to come again, and as much of it as pays. Whether a proposal was right is the sampler's
// to say (each row has the draw it would have alone, so equality is acceptance); here it is only counted. Proposals
// are made by expected gain: acceptance by length of the match, against what rows cost.
import { maxMatch, minMatch, NgramIndex } from "./ngram-index.ts";
import type { RowCosts } from "./row-costs.ts";

/** Rows of proposals in one step; beyond it a row costs what it gains on the machines measured (bench/README.md). */
export const maxDraftTokens = 16;
/** A step must be expected to gain so much; less is lost in what the estimate does not know. */
const minGain = 1.05;
/** Questions without a proposal between two probes of a kind of match that does not pay. */
const maxRest = 64;
/** Older evidence counts so much at each new one. */
const memory = 0.85;

/** How proposals fare whose match has one length. */
interface Experience {
  accepted: number;
  tested: number;
  /** Questions to let pass, and how many it will be next time. */
  rest: number;
  restNext: number;
}

export class PromptLookup {
  readonly #text = new NgramIndex();
  /** By length of match. Longer ones are trusted more to begin with. */
  readonly #experience: Experience[] = Array.from({ length: maxMatch - minMatch + 1 }, (_, place) => ({
    accepted: 0.25 + 0.1 * place,
    tested: 1,
    rest: 0,
    restNext: 1,
  }));
  #match = minMatch;

  /** `tokens`: everything up to the token that is computed next. */
  constructor(tokens: Int32Array) {
    for (const token of tokens) this.#text.push(token);
  }

  push(token: number): void {
    this.#text.push(token);
  }

  /** At most `room` proposals for a step that computes `rows` rows without them. Often none. */
  draft(room: number, rows: number, costs: RowCosts): Int32Array {
    const found = this.#text.find(Math.min(room, maxDraftTokens));
    if (!found) return none;
    this.#match = found.match;
    const experience = this.#experience[found.match - minMatch]!;
    const count = bestCount(experience.accepted / experience.tested, found.tokens.length, rows, costs);
    if (count > 0) return found.tokens.subarray(0, count);
    if (experience.rest-- > 0) return none;
    experience.rest = experience.restNext;
    experience.restNext = Math.min(2 * experience.restNext, maxRest);
    return found.tokens.subarray(0, 1);
  }

  /** Of the last proposals, `proposed` were computed and `accepted` were right. */
  learn(proposed: number, accepted: number): void {
    if (proposed === 0) return;
    const experience = this.#experience[this.#match - minMatch]!;
    // What stands behind the first wrong one was not put to the test.
    experience.accepted = experience.accepted * memory + accepted;
    experience.tested = experience.tested * memory + Math.min(accepted + 1, proposed);
    if (accepted > 0) experience.restNext = 1;
  }
}

const none = new Int32Array(0);

/** Where tokens per time are most, each proposal being right with probability `right` if those before it were. */
function bestCount(right: number, room: number, rows: number, costs: RowCosts): number {
  let best = 0;
  let bestRate = rows * minGain;
  let expected = rows;
  for (let count = 1, all = right; count <= room; count++, all *= right) {
    expected += all;
    const rate = expected / costs.ratio(count);
    if (rate > bestRate) {
      best = count;
      bestRate = rate;
    }
  }
  return best;
}
