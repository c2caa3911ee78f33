// One running job: which of its tokens still lack keys, where their cells are, and what the next step computes of it.
// Bookkeeping in plain numbers; it never calls the runner. A task whose next token found no page is preempted; one
// whose cells were released as well holds all its tokens and is recomputed from the start (see allocation.ts).
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
  /** The edit that opens the cells of the pending tokens; the loop applies it. */
  readonly cells: readonly CellSplice[];
  #gaps: readonly Gap[];
  /** Tokens of the gaps, front to back; the first `#filled` of them are computed. */
  #fill: Int32Array;
  #filled = 0;
  #length: number;
  #generated = 0;
  readonly #promptLength: number;
  /** The token sampled last, while it has no cell. */
  #pendingSample: number | undefined;
  #lookup: PromptLookup | undefined;
  #draft: Int32Array = noTokens;
  #abort: (() => void) | undefined;
  decoding = false;
  servedAt = 0;
  /** The edit is applied. */
  spliced = false;
  /** An allocation was refused since the last one that succeeded. */
  waiting = false;
  /** Set when the consumer left or the signal fired: the loop ends the task between two steps. */
  dropped: Error | undefined;

  /** `length` is that of the sequence before the edit, in cells. */
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

  /** Calls `abort` when the job's signal fires, at once if it has fired. */
  watch(abort: () => void): void {
    this.#abort = abort;
    if (this.job.signal?.aborted) abort();
    else this.job.signal?.addEventListener("abort", abort, { once: true });
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
    return this.#pendingSample !== undefined || (this.#generated > 0 && !this.spliced);
  }

  /** Preempted, with its cells. */
  get holdsCells(): boolean {
    return this.#pendingSample !== undefined;
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
    return this.#draft.length;
  }

  /**
   * Chooses the draft for the next step, which computes `rows` rows without it. `read` returns the tokens of the filled
   * cells; it is called once. A draft has no stop token and no token beyond maxTokens: so only the last token of a step
   * can end an answer, and that token never becomes a cell.
   */
  draft(rows: number, costs: RowCosts, read: () => Int32Array): void {
    const { lookup, constraint, maxTokens, stopTokens } = this.job;
    this.#draft = noTokens;
    if (!lookup || constraint || !this.decoding) return;
    this.#lookup ??= new PromptLookup(concatenate([read().subarray(0, this.filledLength), this.#fill]));
    const found = this.#lookup.draft(maxTokens - this.#generated - 1, rows, costs);
    const end = found.findIndex((token) => stopTokens.has(token));
    this.#draft = end < 0 ? found : found.subarray(0, end);
  }

  /** The step entry for the next `count` pending tokens; with the last of them it asks for a sampled token. */
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
    return { ...entry, sample, ...(this.draftTokens > 0 && { draftTokens: this.#draft }) };
  }

  /**
   * Records a step that computed `count` tokens. True when the answer is complete; otherwise the sampled token, if any,
   * waits for its cell.
   */
  advance(count: number, outcome: StepOutcome): boolean {
    this.#draft = noTokens;
    this.#filled += count;
    if (this.pending > 0) return false;
    if (this.job.maxTokens === 0) return true;
    const { accepted = [], drafted = 0 } = outcome;
    this.#lookup?.learn(drafted, accepted.length);
    for (const token of accepted) this.#emit({ ...generated(token), drafted: true });
    this.#length += accepted.length;
    const rejected = drafted - accepted.length;
    this.#emit({ ...generated(outcome), ...(rejected > 0 && { rejected }) });
    this.#pendingSample = outcome.token;
    const { constraint, maxTokens, stopTokens } = this.job;
    constraint?.accept(outcome.token);
    return this.#generated >= maxTokens || stopTokens.has(outcome.token) || (constraint?.terminated ?? false);
  }

  #emit(item: Generated): void {
    this.#generated++;
    this.#lookup?.push(item.token);
    this.answer.push(item);
  }

  /** The cells to allocate: that of the sampled token, or all cells of a task that is recomputed. */
  get nextCells(): CellSplice {
    return this.#pendingSample === undefined
      ? { start: 0, end: 0, count: this.#fill.length }
      : { start: this.#length, end: this.#length, count: 1 };
  }

  /** `nextCells` are allocated. */
  allocated(): void {
    if (this.#pendingSample !== undefined) {
      this.#fill = Int32Array.of(this.#pendingSample);
      this.#filled = 0;
      this.#gaps = [{ start: this.#length, end: ++this.#length }];
      this.#pendingSample = undefined;
      this.decoding = true;
    }
    this.spliced = true;
    this.waiting = false;
  }

  /** Its cells, which held `tokens`, were released: computes them and the sampled token again. */
  recompute(tokens: Int32Array): void {
    this.#fill = concatenate([tokens, Int32Array.of(this.#pendingSample!)]);
    this.#filled = 0;
    this.#length = this.#fill.length;
    this.#gaps = [{ start: 0, end: this.#length }];
    this.#pendingSample = undefined;
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
