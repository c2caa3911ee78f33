// One job under way: which of its tokens still lack keys, where they stand, and what the next step needs of
// it. Bookkeeping in plain numbers; it never calls the runner.
import type { CellSplice, StepEntry, StepOutcome } from "./addon.ts";
import type { Answer } from "./answer.ts";
import type { Job } from "./job.ts";
import type { Demand } from "./plan.ts";
import type { Sequence } from "./sequence.ts";

/** New cells [start, end), in new coordinates. */
interface Gap {
  readonly start: number;
  readonly end: number;
}

export class Task implements Demand {
  readonly cells: readonly CellSplice[];
  readonly #gaps: readonly Gap[];
  #fill: Int32Array;
  #filled = 0;
  #length: number;
  #generated = 0;
  readonly #promptLength: number;
  decoding = false;
  /** Set when the reader left or the signal fired: the engine drops the task between two steps. */
  dropped: Error | undefined;

  /** `length` is the sequence's before the edit. */
  constructor(
    readonly sequence: Sequence,
    readonly job: Job,
    readonly answer: Answer,
    length: number,
  ) {
    this.cells = job.splices.map(({ start, end, tokens }) => ({ start, end, count: tokens.length }));
    let shift = 0;
    const gaps: Gap[] = [];
    for (const { start, end, count } of this.cells) {
      if (count > 0) gaps.push({ start: start + shift, end: start + shift + count });
      shift += count - (end - start);
    }
    this.#gaps = gaps;
    this.#length = length + shift;
    this.#promptLength = this.#length;
    this.#fill = concatenate(job.splices.map((splice) => splice.tokens));
  }

  #abort: (() => void) | undefined;

  /** Calls `leave` when the job's signal fires, at once if it has fired. */
  watch(leave: () => void): void {
    this.#abort = leave;
    if (this.job.signal?.aborted) leave();
    else this.job.signal?.addEventListener("abort", leave, { once: true });
  }

  unwatch(): void {
    if (this.#abort) this.job.signal?.removeEventListener("abort", this.#abort);
  }

  get pending(): number {
    return this.#fill.length - this.#filled;
  }

  /** Cells of the sequence, gaps included. */
  get length(): number {
    return this.#length;
  }

  /** Leading cells that have keys: everything in front of the first open gap. */
  get filledLength(): number {
    if (this.pending === 0) return this.#length;
    if (this.decoding) return this.#length - 1;
    let passed = this.#filled;
    for (const gap of this.#gaps) {
      if (passed < gap.end - gap.start) return gap.start + passed;
      passed -= gap.end - gap.start;
    }
    return this.#length;
  }

  /** The step's entry for the next `count` pending tokens; asks for a token when they are the last ones. */
  entry(count: number): StepEntry {
    const tokens = this.#fill.subarray(this.#filled, this.#filled + count);
    const entry = { sequence: this.sequence.id, tokens };
    if (count < this.pending || this.job.maxTokens === 0) return entry;
    const { sampling, top } = this.job;
    return {
      ...entry,
      sample: { ...sampling, draw: this.#generated, generatedFrom: this.#promptLength, top },
    };
  }

  /** After a step that computed `count` tokens. True when the answer is complete. */
  advance(count: number, outcome: StepOutcome): boolean {
    this.#filled += count;
    if (this.pending > 0) return false;
    if (this.job.maxTokens === 0) return true;
    this.#generated++;
    this.answer.push({
      token: outcome.token,
      logprob: outcome.logprob,
      top: Array.from(outcome.topTokens, (token, rank) => ({ token, logprob: outcome.topLogprobs[rank]! })),
    });
    this.decoding = true;
    return this.#generated >= this.job.maxTokens || this.job.stopTokens.has(outcome.token);
  }

  /** Opens the cell of the token sampled last; the caller splices the sequence accordingly. */
  feed(token: number): CellSplice {
    const end = this.#length;
    this.#fill = Int32Array.of(token);
    this.#filled = 0;
    this.#length++;
    return { start: end, end, count: 1 };
  }
}

function concatenate(parts: readonly Int32Array[]): Int32Array {
  const whole = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
