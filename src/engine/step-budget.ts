// Token budget of the next step. While no answer streams, a prompt is read in steps of `stepTokens`; while one streams,
// a step must end within the target gap between two of its tokens. The cost of a prompt token is learnt from the last
// steps, since it grows with the depth of the prompt and differs between machines. Pure arithmetic on counts and
// milliseconds; it reads no clock.
import { minPromptTokens } from "./scheduler.ts";

export interface StepCost {
  readonly promptTokens: number;
  readonly decodeTokens: number;
  /** Cells in front of the deepest of the prompt tokens. */
  readonly depth: number;
  readonly ms: number;
}

/** Prompt tokens of a step before a cost is known: few enough for a slow machine. */
const initialTokens = 32;
/** Weight of an observation above and below the average: the gap is an upper bound, so a rise counts at once. */
const weightUp = 0.7;
const weightDown = 0.2;

export class StepBudget {
  #msPerPromptToken: number | undefined;
  /** Depth in cells up to which that cost was observed. */
  #depth = 0;
  /** Of a step without prompt tokens. */
  #decodeMs = 0;

  constructor(
    /** Tokens of a step while no answer streams. */
    private readonly stepTokens: number,
    /** Target for the time between two tokens of a stream, in milliseconds. */
    private readonly gapMs: number,
  ) {}

  /** Tokens for the next step, decodes included; `depth` is that of the deepest prompt in it, in cells. */
  budget(decodes: number, depth: number): number {
    if (decodes === 0) return this.stepTokens;
    const cost = this.#costAt(depth);
    if (cost === undefined) return Math.min(this.stepTokens, initialTokens + decodes);
    const fitting = Math.floor((this.gapMs - this.#decodeMs) / cost);
    return Math.min(this.stepTokens, decodes + Math.max(fitting, minPromptTokens));
  }

  observe({ promptTokens, decodeTokens, depth, ms }: StepCost): void {
    if (promptTokens === 0) {
      this.#decodeMs = average(this.#decodeMs, ms);
      return;
    }
    // With few prompt tokens the fixed cost of the step would be counted as theirs.
    if (promptTokens < minPromptTokens) return;
    const promptMs = Math.max(ms - (decodeTokens > 0 ? this.#decodeMs : 0), ms / 2);
    this.#msPerPromptToken = average(this.#costAt(depth), promptMs / promptTokens);
    this.#depth = Math.max(depth, this.#depth + (depth - this.#depth) * weightDown);
  }

  /** Milliseconds per prompt token. Undefined far deeper than observed, where the cost is several times as high. */
  #costAt(depth: number): number | undefined {
    return depth > 2 * this.#depth + this.stepTokens ? undefined : this.#msPerPromptToken;
  }
}

function average(known: number | undefined, observed: number): number {
  if (known === undefined) return observed;
  return known + (observed - known) * (observed > known ? weightUp : weightDown);
}
