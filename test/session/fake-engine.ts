// A scripted engine for tests of the session room: cells are plain objects in plain arrays, the model is a
// function of the tokens. It keeps the contract of src/engine/job.ts strictly and throws where a caller breaks
// it. It knows, cell by cell, whether a cold prefill would give the same, which is what exactness means.
import { Answer } from "../../src/engine/answer.ts";
import type { EnginePort, Generated, Job, SequencePort } from "../../src/engine/job.ts";
import { pocketError } from "../../src/errors.ts";

interface Cell {
  readonly token: number;
  exact: boolean;
  filled: boolean;
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
  /** Edits and steps wait for it, when set: lets a test stop the clock. */
  gate: Promise<void> | undefined;
  failure: Error | undefined;
  readonly jobs: Job[] = [];

  constructor(
    readonly model: Model,
    options: { readonly context?: number; readonly capacity?: number } = {},
  ) {
    this.context = options.context ?? 4096;
    this.capacity = options.capacity ?? 1 << 20;
  }

  /** Cells are counted once, however many sequences share them. */
  get tokensFree(): number {
    const cells = new Set<Cell>();
    for (const { cells: own } of this.sequences) for (const cell of own) cells.add(cell);
    return this.capacity - cells.size;
  }

  create(): FakeSequence {
    const sequence = new FakeSequence(this, []);
    this.sequences.add(sequence);
    return sequence;
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
    public cells: Cell[],
  ) {}

  get length(): number {
    const open = this.cells.findIndex(({ filled }) => !filled);
    return open < 0 ? this.cells.length : open;
  }

  get exactLength(): number {
    const stale = this.cells.findIndex(({ exact }) => !exact);
    return Math.min(stale < 0 ? this.cells.length : stale, this.length);
  }

  get tokens(): number[] {
    return this.cells.map(({ token }) => token);
  }

  fork(length: number): FakeSequence {
    if (length > this.length) throw pocketError("BAD_ARGUMENT", `Fork of ${length} of ${this.length} cells.`);
    const child = new FakeSequence(this.engine, this.cells.slice(0, length));
    this.engine.sequences.add(child);
    return child;
  }

  release(): void {
    this.released = true;
    this.engine.sequences.delete(this);
  }

  run(job: Job): AsyncGenerator<Generated, void, undefined> {
    if (this.released || this.#running) throw pocketError("BAD_ARGUMENT", "Released, or running already.");
    checkSplices(job, this.cells.length);
    this.#running = true;
    this.engine.jobs.push(job);
    let left = false;
    const answer: Answer = new Answer(async () => {
      left = true;
      await done;
    });
    const done = this.#run(job, answer, () => left);
    return answer;
  }

  /** Runs ahead of the reader, as the engine does: what is sampled waits until it is read. */
  async #run(job: Job, answer: Answer, hasLeft: () => boolean): Promise<void> {
    const stopIfLeft = () => {
      if (job.signal?.aborted || hasLeft()) throw pocketError("CANCELLED");
    };
    let failure: Error | undefined;
    try {
      // The edit waits for the step under way.
      if (this.engine.gate) await this.engine.gate;
      stopIfLeft();
      this.#edit(job);
      await this.#prefill(stopIfLeft);
      for (let count = 0; count < job.maxTokens; ) {
        const token = this.engine.model(this.tokens);
        answer.push({ token, logprob: -0.5, top: [{ token, logprob: -0.5 }].slice(0, job.top) });
        if (++count === job.maxTokens || job.stopTokens.has(token)) break;
        this.#append(token);
        await this.engine.step();
        stopIfLeft();
      }
    } catch (cause) {
      failure = cause as Error;
    }
    this.cells.length = this.length;
    this.#running = false;
    answer.end(failure);
  }

  #edit({ splices }: Job): void {
    const cut = splices.reduce((sum, { start, end }) => sum + end - start, 0);
    const added = splices.reduce((sum, { tokens }) => sum + tokens.length, 0);
    // As the real pool: cut cells count only when they are this sequence's alone; here they never count.
    if (added > this.engine.tokensFree) {
      throw pocketError("CACHE_FULL", Math.floor(this.engine.tokensFree / 16), 16, added - cut);
    }
    const cells = this.cells.slice();
    for (const { start, end, tokens } of splices.toReversed()) {
      const gap = Array.from(tokens, (token): Cell => ({ token, exact: false, filled: false }));
      // Survivors are other cells from here on: a fork that shares them keeps its own judgement of them.
      const behind = cells.slice(end).map((cell) => (cell.filled ? { ...cell, exact: false } : cell));
      cells.splice(start, cells.length - start, ...gap, ...behind);
    }
    this.cells = cells;
  }

  async #prefill(stopIfLeft: () => void): Promise<void> {
    const gaps = this.cells.filter(({ filled }) => !filled);
    for (let at = 0; at < gaps.length; at += this.engine.stepTokens) {
      await this.engine.step();
      stopIfLeft();
      for (const cell of gaps.slice(at, at + this.engine.stepTokens)) this.#fill(cell);
    }
  }

  #append(token: number): void {
    if (this.engine.tokensFree < 1) throw pocketError("CACHE_FULL", 0, 16, 1);
    const cell = { token, exact: false, filled: false };
    this.cells.push(cell);
    this.#fill(cell);
  }

  #fill(cell: Cell): void {
    const place = this.cells.indexOf(cell);
    cell.exact = this.cells.slice(0, place).every(({ exact }) => exact);
    cell.filled = true;
    this.engine.tokensComputed++;
  }
}

function checkSplices({ splices }: Job, length: number): void {
  let end = 0;
  for (const splice of splices) {
    const inOrder = splice.start >= end && splice.end >= splice.start && splice.end <= length;
    if (!inOrder)
      throw pocketError("BAD_ARGUMENT", `Splice ${splice.start}..${splice.end} of ${length} cells.`);
    end = splice.end;
  }
  const last = splices.at(-1);
  if (!last || last.end !== length || last.tokens.length === 0) {
    throw pocketError("BAD_ARGUMENT", "The last cell must be among the new tokens.");
  }
}

/** A model whose answers are scripted: each prompt gets the next one, token by token, then `stopToken`. */
export function scripted(
  answers: readonly (readonly number[])[],
  stopToken: number,
  isTurn: (tokens: readonly number[]) => boolean,
): Model {
  let answer = -1;
  let place = 0;
  return (tokens) => {
    if (isTurn(tokens)) {
      answer++;
      place = 0;
    }
    return answers[answer % answers.length]![place++] ?? stopToken;
  };
}

/** A model that says something else after every other text, and never stops. */
export function hashing(vocabulary: number): Model {
  return (tokens) => {
    let hash = 2166136261;
    for (const token of tokens) hash = Math.imul(hash ^ token, 16777619) >>> 0;
    return hash % vocabulary;
  };
}
