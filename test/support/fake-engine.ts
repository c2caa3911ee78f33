// A scripted engine for tests of src/session: cells are plain objects in arrays, the model is a function of the tokens.
// Follows the contract of src/engine/job.ts strictly and throws if a caller breaks it. Tracks for every cell whether a
// cold prefill would give the same, which is what exactness means.
import { readFile, writeFile } from "node:fs/promises";
import type { EnginePort, Generated, Job, SequencePort } from "../../src/engine/job.ts";
import { TokenStream } from "../../src/engine/token-stream.ts";
import { pocketError } from "../../src/errors.ts";
import { allowedFrom } from "./scripted-runner.ts";

interface Cell {
  readonly token: number;
  exact: boolean;
  filled: boolean;
  /** Index at which it was filled; -1 before. */
  birth: number;
  readonly slot: number;
}

/** The next token after these. */
export type Model = (tokens: readonly number[]) => number;

export class FakeEngine implements EnginePort {
  readonly context: number;
  readonly capacity: number;
  readonly pageSize = 16;
  readonly sequences = new Set<FakeSequence>();
  tokensComputed = 0;
  /** Tokens computed between two turns of the event loop. */
  stepTokens = 64;
  /** If set, edits and steps wait for it. */
  gate: Promise<void> | undefined;
  failure: Error | undefined;
  readonly jobs: Job[] = [];
  busy = 0;
  /** If set, saving fails with it. */
  saveFailure: Error | undefined;
  /** Files that were loaded. */
  loads = 0;
  #slots = 0;

  constructor(
    readonly model: Model,
    options: { readonly context?: number; readonly capacity?: number } = {},
  ) {
    this.context = options.context ?? 4096;
    this.capacity = options.capacity ?? 1 << 20;
  }

  /** Slots are counted once, however many sequences share them. */
  get tokensFree(): number {
    const slots = new Set<number>();
    for (const { filledOrNot } of this.sequences) for (const { slot } of filledOrNot) slots.add(slot);
    return this.capacity - slots.size;
  }

  create(): FakeSequence {
    const sequence = new FakeSequence(this, []);
    this.sequences.add(sequence);
    return sequence;
  }

  /** Creates the sequence after the whole file was read. */
  async load(file: string): Promise<FakeSequence> {
    let cells: Cell[];
    try {
      cells = (JSON.parse(await readFile(file, "utf8")) as Cell[]).map((cell) => ({
        ...cell,
        slot: this.#slots++,
      }));
    } catch (cause) {
      throw pocketError("KV_FILE_REFUSED", file, (cause as Error).message);
    }
    if (cells.length > this.tokensFree) throw pocketError("CACHE_FULL", 0, 16, cells.length);
    this.loads++;
    const sequence = new FakeSequence(this, cells);
    this.sequences.add(sequence);
    return sequence;
  }

  open(token: number): Cell {
    return { token, exact: false, filled: false, birth: -1, slot: this.#slots++ };
  }

  async step(): Promise<void> {
    if (this.gate) await this.gate;
    else await new Promise((resolve) => setImmediate(resolve));
    if (this.failure) throw this.failure;
  }
}

export class FakeSequence implements SequencePort {
  released = false;
  #running = false;

  constructor(
    private readonly engine: FakeEngine,
    public filledOrNot: Cell[],
  ) {}

  get length(): number {
    const open = this.filledOrNot.findIndex(({ filled }) => !filled);
    return open < 0 ? this.filledOrNot.length : open;
  }

  get exactLength(): number {
    const stale = this.filledOrNot.findIndex(({ exact }) => !exact);
    return Math.min(stale < 0 ? this.filledOrNot.length : stale, this.length);
  }

  tokens(): Int32Array {
    return Int32Array.from(this.all.slice(0, this.length));
  }

  /** Tokens of all cells, filled or not. */
  get all(): number[] {
    return this.filledOrNot.map(({ token }) => token);
  }

  cells(): { readonly births: Int32Array; readonly slots: Int32Array } {
    const filled = this.filledOrNot.slice(0, this.length);
    return {
      births: Int32Array.from(filled, ({ birth }) => birth),
      slots: Int32Array.from(filled, ({ slot }) => slot),
    };
  }

  fork(length: number): FakeSequence {
    if (length > this.length) throw pocketError("BAD_ARGUMENT", `Fork of ${length} of ${this.length} cells.`);
    const child = new FakeSequence(this.engine, this.filledOrNot.slice(0, length));
    this.engine.sequences.add(child);
    return child;
  }

  adopt(from: FakeSequence, start: number, end: number): void {
    const cells = from.filledOrNot.slice(start, end).map((cell) => ({ ...cell, exact: false }));
    this.filledOrNot = [...this.filledOrNot, ...cells];
  }

  async save(file: string): Promise<void> {
    const text = JSON.stringify(this.filledOrNot.slice(0, this.length));
    await new Promise((resolve) => setImmediate(resolve));
    if (this.engine.saveFailure) throw this.engine.saveFailure;
    await writeFile(file, text);
  }

  release(): void {
    this.released = true;
    this.engine.sequences.delete(this);
  }

  run(job: Job): AsyncGenerator<Generated, void, undefined> {
    if (this.released || this.#running) throw pocketError("BAD_ARGUMENT", "Released, or running already.");
    checkSplices(job, this.filledOrNot.length);
    this.#running = true;
    if (!job.background) this.engine.busy++;
    this.engine.jobs.push(job);
    let left = false;
    const answer: TokenStream = new TokenStream(async () => {
      left = true;
      await done;
    });
    const done = this.#run(job, answer, () => left);
    return answer;
  }

  /** Runs ahead of the reader, as the engine does: sampled tokens are queued. */
  async #run(job: Job, answer: TokenStream, hasLeft: () => boolean): Promise<void> {
    const stopIfLeft = () => {
      if (job.signal?.aborted || hasLeft()) throw pocketError("CANCELLED");
    };
    let failure: Error | undefined;
    try {
      // The edit waits for the running step.
      if (this.engine.gate) await this.engine.gate;
      stopIfLeft();
      this.#edit(job);
      await this.#prefill(stopIfLeft);
      for (let count = 0; count < job.maxTokens; ) {
        const wanted = this.engine.model(this.all);
        const token = allowedFrom(wanted, job.constraint?.mask(), 4096);
        job.constraint?.accept(token);
        answer.push({ token, logprob: -0.5, top: [{ token, logprob: -0.5 }].slice(0, job.top) });
        if (++count === job.maxTokens || job.stopTokens.has(token) || job.constraint?.terminated) break;
        this.#append(token);
        await this.engine.step();
        stopIfLeft();
      }
    } catch (cause) {
      failure = cause as Error;
    }
    if (job.keepsSurvivors) this.filledOrNot = this.filledOrNot.filter(({ filled }) => filled);
    else this.filledOrNot.length = this.length;
    this.#running = false;
    if (!job.background) this.engine.busy--;
    answer.end(failure);
  }

  #edit({ splices }: Job): void {
    const cut = splices.reduce((sum, { start, end }) => sum + end - start, 0);
    const added = splices.reduce((sum, { tokens }) => sum + tokens.length, 0);
    // The real pool counts cut cells as free if no other sequence shares them; here they never count.
    if (added > this.engine.tokensFree) {
      throw pocketError("CACHE_FULL", Math.floor(this.engine.tokensFree / 16), 16, added - cut);
    }
    const cells = this.filledOrNot.slice();
    for (const { start, end, tokens } of splices.toReversed()) {
      const gap = Array.from(tokens, (token) => this.engine.open(token));
      // Copies the survivors, so that a fork that shares them keeps its own exactness.
      const behind = cells.slice(end).map((cell) => (cell.filled ? { ...cell, exact: false } : cell));
      cells.splice(start, cells.length - start, ...gap, ...behind);
    }
    this.filledOrNot = cells;
  }

  async #prefill(stopIfLeft: () => void): Promise<void> {
    const gaps = this.filledOrNot.filter(({ filled }) => !filled);
    for (let at = 0; at < gaps.length; at += this.engine.stepTokens) {
      await this.engine.step();
      stopIfLeft();
      for (const cell of gaps.slice(at, at + this.engine.stepTokens)) this.#fill(cell);
    }
  }

  #append(token: number): void {
    if (this.engine.tokensFree < 1) throw pocketError("CACHE_FULL", 0, 16, 1);
    const cell = this.engine.open(token);
    this.filledOrNot.push(cell);
    this.#fill(cell);
  }

  #fill(cell: Cell): void {
    const index = this.filledOrNot.indexOf(cell);
    cell.exact = this.filledOrNot.slice(0, index).every(({ exact }) => exact);
    cell.filled = true;
    cell.birth = index;
    this.engine.tokensComputed++;
  }
}

function checkSplices({ splices, maxTokens }: Job, length: number): void {
  let end = 0;
  for (const splice of splices) {
    const inOrder = splice.start >= end && splice.end >= splice.start && splice.end <= length;
    if (!inOrder)
      throw pocketError("BAD_ARGUMENT", `Splice ${splice.start}..${splice.end} of ${length} cells.`);
    end = splice.end;
  }
  const last = splices.at(-1);
  if (last && maxTokens === 0) return;
  if (!last || last.end !== length || last.tokens.length === 0) {
    throw pocketError("BAD_ARGUMENT", "The last cell must be among the new tokens.");
  }
}

/** A model with scripted answers: each prompt gets the next one, token by token, then `stopToken`. */
export function scripted(
  answers: readonly (readonly number[])[],
  stopToken: number,
  isTurn: (tokens: readonly number[]) => boolean,
): Model {
  let answer = -1;
  let index = 0;
  return (tokens) => {
    if (isTurn(tokens)) {
      answer++;
      index = 0;
    }
    return answers[answer % answers.length]![index++] ?? stopToken;
  };
}

/** A model whose next token depends on all tokens before it; it never stops. */
export function hashing(vocabulary: number): Model {
  return (tokens) => {
    let hash = 2166136261;
    for (const token of tokens) hash = Math.imul(hash ^ token, 16777619) >>> 0;
    return hash % vocabulary;
  };
}
