// One job under way: which of its tokens still lack keys, where they stand, and what the next step needs of
// it. Bookkeeping in plain numbers; it never calls the runner. An answer whose next token found no page is
// parked; one that gave its cells up as well knows all its tokens and is read again from the start.
import type { CellSplice, SampledToken, StepEntry, StepOutcome } from "./addon.ts";
import type { Generated, Job } from "./job.ts";
import { PromptLookup } from "./prompt-lookup.ts";
import type { RowCosts } from "./row-costs.ts";
import type { Demand } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";
import type { TokenStream } from "./token-stream.ts";

/** Cells [start, end), in new coordinates. */
interface Gap {
  readonly start: number;
  readonly end: number;
}

export class Task implements Demand {
  /** The edit that opens the cells of the pending tokens, to be applied by the engine. */
  cells: readonly CellSplice[];
  #gaps: readonly Gap[];
  #fill: Int32Array;
  #filled = 0;
  #length: number;
  #generated = 0;
  readonly #promptLength: number;
  /** The token sampled last, while it has no cell. */
  #owed: number | undefined;
  #lookup: PromptLookup | undefined;
  #proposals: Int32Array = noTokens;
  decoding = false;
  servedAt = 0;
  /** The edit is applied. */
  spliced = false;
  /** Its claim was refused at least once. */
  waiting = false;
  /** Set when the reader left or the signal fired: the engine drops the task between two steps. */
  dropped: Error | undefined;

  /** `length` is the sequence's before the edit. */
  constructor(
    readonly sequence: Sequence,
    readonly job: Job,
    readonly answer: TokenStream,
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

  get background(): boolean {
    return this.job.background ?? false;
  }

  get pending(): number {
    return this.#fill.length - this.#filled;
  }

  /** Waits for a page, with its cells or without. */
  get preempted(): boolean {
    return this.#owed !== undefined || (this.#generated > 0 && !this.spliced);
  }

  /** Parked and still in possession of its cells. */
  get holdsCells(): boolean {
    return this.#owed !== undefined;
  }

  /** Cells of the sequence, gaps included. */
  get length(): number {
    return this.#length;
  }

  /** Leading cells that have keys: everything in front of the first open gap. */
  get filledLength(): number {
    return this.openGaps()[0]?.start ?? this.#length;
  }

  /** Cells without keys, front to back. */
  openGaps(): Gap[] {
    let passed = this.#filled;
    const open: Gap[] = [];
    for (const { start, end } of this.#gaps) {
      const filled = Math.min(passed, end - start);
      passed -= filled;
      if (start + filled < end) open.push({ start: start + filled, end });
    }
    return open;
  }

  get draftTokens(): number {
    return this.#proposals.length;
  }

  /**
   * Chooses what to propose in the next step, which computes `rows` rows without it. `read` gives the tokens of the
   * filled cells; it is called once. A stop token is never proposed, and nothing that the answer is too short for: so
   * only the last token of a step can end an answer, and what ends one never becomes a cell.
   */
  draft(rows: number, costs: RowCosts, read: () => Int32Array): void {
    const { lookup, constraint, maxTokens, stopTokens } = this.job;
    this.#proposals = noTokens;
    if (!lookup || constraint || !this.decoding) return;
    this.#lookup ??= new PromptLookup(concatenate([read().subarray(0, this.filledLength), this.#fill]));
    const found = this.#lookup.draft(maxTokens - this.#generated - 1, rows, costs);
    const end = found.findIndex((token) => stopTokens.has(token));
    this.#proposals = end < 0 ? found : found.subarray(0, end);
  }

  /** The step's entry for the next `count` pending tokens; asks for a token when they are the last ones. */
  entry(count: number): StepEntry {
    const tokens = this.#fill.subarray(this.#filled, this.#filled + count);
    const entry = { sequence: this.sequence.id, tokens };
    if (count < this.pending || this.job.maxTokens === 0) return entry;
    const { sampling, top, draw = 0, generatedFrom = this.#promptLength, constraint } = this.job;
    const mask = constraint?.mask();
    const logprob = this.job.logprobs ?? true;
    const sample = {
      ...sampling,
      draw: draw + this.#generated,
      generatedFrom,
      top,
      logprob,
      ...(mask && { mask }),
    };
    return { ...entry, sample, ...(this.draftTokens > 0 && { draftTokens: this.#proposals }) };
  }

  /** After a step that computed `count` tokens. True when the answer is complete; else a token may be owed. */
  advance(count: number, outcome: StepOutcome): boolean {
    this.#proposals = noTokens;
    this.#filled += count;
    if (this.pending > 0) return false;
    if (this.job.maxTokens === 0) return true;
    const { accepted = [], drafted = 0 } = outcome;
    this.#lookup?.learn(drafted, accepted.length);
    for (const token of accepted) this.#say({ ...generated(token), drafted: true });
    this.#length += accepted.length;
    const rejected = drafted - accepted.length;
    this.#say({ ...generated(outcome), ...(rejected > 0 && { rejected }) });
    this.#owed = outcome.token;
    const { constraint, maxTokens, stopTokens } = this.job;
    constraint?.accept(outcome.token);
    return this.#generated >= maxTokens || stopTokens.has(outcome.token) || (constraint?.terminated ?? false);
  }

  #say(item: Generated): void {
    this.#generated++;
    this.#lookup?.push(item.token);
    this.answer.push(item);
  }

  /** What opens the cell of the token that is owed, or all cells of a task that gave them up. */
  get nextCells(): CellSplice {
    return this.#owed === undefined
      ? { start: 0, end: 0, count: this.#fill.length }
      : { start: this.#length, end: this.#length, count: 1 };
  }

  /** The claim was met. */
  allocated(): void {
    if (this.#owed !== undefined) {
      this.#fill = Int32Array.of(this.#owed);
      this.#filled = 0;
      this.#gaps = [{ start: this.#length, end: ++this.#length }];
      this.#owed = undefined;
      this.decoding = true;
    }
    this.spliced = true;
    this.waiting = false;
  }

  /** Its cells, which held `tokens`, are cut: what is left is to read them and the owed one again. */
  recompute(tokens: Int32Array): void {
    this.#fill = concatenate([tokens, Int32Array.of(this.#owed!)]);
    this.#filled = 0;
    this.#length = this.#fill.length;
    this.#gaps = [{ start: 0, end: this.#length }];
    this.#owed = undefined;
    this.decoding = false;
    this.spliced = false;
  }
}

const noTokens = new Int32Array(0);

function generated({ token, logprob, topTokens, topLogprobs }: SampledToken): Generated {
  const top = Array.from(topTokens, (id, rank) => ({ token: id, logprob: topLogprobs[rank]! }));
  return { token, logprob, top };
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
