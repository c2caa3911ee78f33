// A handle on one native sequence. Calls that change cells are applied after the running step, in call order; reads in
// between already return the state after them.
import { pocketError } from "../errors.ts";
import type { Cells, SequenceId } from "./addon.ts";
import type { Generated, Job, SequencePort } from "./job.ts";

/** What a sequence asks of its engine. Ranges are [start, end), in cells. */
export interface SequenceEngine {
  readonly closed: boolean;
  exactLength(sequence: Sequence): number;
  cells(sequence: Sequence): Cells;
  start(sequence: Sequence, job: Job): AsyncGenerator<Generated, void, undefined>;
  fork(sequence: Sequence, length: number): SequencePort;
  adopt(sequence: Sequence, from: Sequence, start: number, end: number): void;
  save(sequence: Sequence, file: string): Promise<void>;
  release(sequence: Sequence): void;
}

/** What a sequence reads of its running job. */
export interface RunningJob {
  readonly background: boolean;
  /** Whether the edit was applied. */
  readonly spliced: boolean;
  /** Filled leading cells. */
  readonly filledLength: number;
}

export class Sequence implements SequencePort {
  #id: SequenceId | undefined;
  #length: number;
  /** The running job, if any; set by the engine. */
  task: RunningJob | undefined;
  /** Set when a change that was deferred to the end of a step failed: the sequence cannot be used any more. */
  fault: Error | undefined;
  released = false;

  constructor(
    private readonly engine: SequenceEngine,
    length: number,
    /** Exact length until the native sequence exists, in cells. */
    private readonly initialExactLength: number,
  ) {
    this.#length = length;
  }

  get id(): SequenceId {
    if (this.#id === undefined) throw pocketError("BAD_ARGUMENT", "The sequence does not exist yet.");
    return this.#id;
  }

  get length(): number {
    // The edit of a background job is applied at its first step: before that, forks and saves must not see it.
    if (this.task?.background && !this.task.spliced) return this.#length;
    return this.task?.filledLength ?? this.#length;
  }

  get exactLength(): number {
    const exact = this.#readable ? this.engine.exactLength(this) : this.initialExactLength;
    return Math.min(exact, this.length);
  }

  tokens(): Int32Array {
    return this.#readable ? this.engine.cells(this).tokens.slice(0, this.length) : new Int32Array(0);
  }

  cells(): { readonly births: Int32Array; readonly slots: Int32Array } | undefined {
    if (!this.#readable) return undefined;
    const { births, slots } = this.engine.cells(this);
    return { births: births.slice(0, this.length), slots: slots.slice(0, this.length) };
  }

  run(job: Job): AsyncGenerator<Generated, void, undefined> {
    return this.engine.start(this, job);
  }

  fork(length: number): SequencePort {
    return this.engine.fork(this, length);
  }

  adopt(from: SequencePort, start: number, end: number): void {
    if (!(from instanceof Sequence))
      throw pocketError("BAD_ARGUMENT", "Cells can only be adopted within one engine.");
    this.engine.adopt(this, from, start, end);
  }

  save(file: string): Promise<void> {
    return this.engine.save(this, file);
  }

  release(): void {
    if (this.released) return;
    this.released = true;
    this.engine.release(this);
  }

  /** Called by the engine when the native sequence exists. */
  bind(id: SequenceId): void {
    this.#id = id;
  }

  get bound(): boolean {
    return this.#id !== undefined;
  }

  /** Called by the engine after an edit or a job with the number of filled cells. */
  record(length: number): void {
    this.#length = length;
  }

  get #readable(): boolean {
    return this.bound && !this.released && !this.engine.closed;
  }
}
