// How many tokens the next step may compute. Alone, a prompt is read in steps as large as allowed; while
// somebody streams, a step must end within the gap that a reader still takes for fluent. What a prompt token
// costs is learnt from the last steps, since it grows with the depth of the prompt and differs between
// machines. Pure arithmetic on counts and milliseconds; it reads no clock.
import { minPromptTokens } from "./scheduler.ts";

export interface StepCost {
  readonly promptTokens: number;
  readonly decodeTokens: number;
  /** Cells in front of the deepest of the prompt tokens. */
  readonly depth: number;
  readonly ms: number;
}

/** Before anything is known: small enough for a slow machine, and known better one step later. */
const firstGuess = 32;
/** A step that was dearer than thought counts at once, a cheaper one by and by: the gap is a bound. */
const weightUp = 0.7;
const weightDown = 0.2;

export class StepBudget {
  #msPerPromptToken: number | undefined;
  /** Where that was learnt. */
  #depth = 0;
  /** Of a step without prompt tokens. */
  #msOfDecodes = 0;

  constructor(
    /** Tokens of a step that no stream waits for. */
    private readonly stepTokens: number,
    /** Target for the time between two tokens of a stream. */
    private readonly gapMs: number,
  ) {}

  /** Tokens for the next step, decodes included; `depth` is that of the deepest prompt in it, in cells. */
  budget(decodes: number, depth: number): number {
    if (decodes === 0) return this.stepTokens;
    const known = this.#knownAt(depth);
    if (known === undefined) return Math.min(this.stepTokens, firstGuess + decodes);
    const fitting = Math.floor((this.gapMs - this.#msOfDecodes) / known);
    return Math.min(this.stepTokens, decodes + Math.max(fitting, minPromptTokens));
  }

  observe({ promptTokens, decodeTokens, depth, ms }: StepCost): void {
    if (promptTokens === 0) {
      this.#msOfDecodes = blend(this.#msOfDecodes, ms);
      return;
    }
    // A few prompt tokens say little: what the step costs without any would be put down to them.
    if (promptTokens < minPromptTokens) return;
    const forPrompt = Math.max(ms - (decodeTokens > 0 ? this.#msOfDecodes : 0), ms / 2);
    this.#msPerPromptToken = blend(this.#knownAt(depth), forPrompt / promptTokens);
    this.#depth = Math.max(depth, this.#depth + (depth - this.#depth) * weightDown);
  }

  /** A token far deeper than those that were seen costs several times as much: nothing is known of it. */
  #knownAt(depth: number): number | undefined {
    return depth > 2 * this.#depth + this.stepTokens ? undefined : this.#msPerPromptToken;
  }
}

function blend(known: number | undefined, seen: number): number {
  if (known === undefined) return seen;
  return known + (seen - known) * (seen > known ? weightUp : weightDown);
}
