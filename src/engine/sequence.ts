// A handle on one native sequence. Calls that change cells wait for the end of the running step, in the order
// they were made; what a caller reads in between is what it will find then.
import { pocketError } from "../errors.ts";
import type { SequenceId } from "./addon.ts";
import type { Engine } from "./engine.ts";
import type { Generated, Job, SequencePort } from "./job.ts";
import type { Task } from "./task.ts";

export class Sequence implements SequencePort {
  #id: SequenceId | undefined;
  #length: number;
  /** The job under way, if any; kept by the engine. */
  task: Task | undefined;
  /** Why it cannot be used: a change that was put off to the end of a step failed then. */
  fault: Error | undefined;
  released = false;

  constructor(
    private readonly engine: Engine,
    length: number,
    /** Until it is bound; from then on the native side knows. */
    private readonly exactLengthExpected: number,
  ) {
    this.#length = length;
  }

  get id(): SequenceId {
    if (this.#id === undefined) throw pocketError("BAD_ARGUMENT", "A sequence was used before it was made.");
    return this.#id;
  }

  get length(): number {
    // The edit of background work that has not begun is not there yet, also for whoever forks or saves now.
    if (this.task?.background && !this.task.spliced) return this.#length;
    return this.task?.filledLength ?? this.#length;
  }

  get exactLength(): number {
    const exact = this.#readable ? this.engine.exactLength(this) : this.exactLengthExpected;
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
      throw pocketError("BAD_ARGUMENT", "Cells can only be adopted inside one engine.");
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

  /** For the engine: the native side now has this sequence. */
  bind(id: SequenceId): void {
    this.#id = id;
  }

  get bound(): boolean {
    return this.#id !== undefined;
  }

  /** For the engine: filled cells after an edit or a job. */
  record(length: number): void {
    this.#length = length;
  }

  get #readable(): boolean {
    return this.bound && !this.released && !this.engine.closed;
  }
}
