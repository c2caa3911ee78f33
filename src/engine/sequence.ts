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
  #exactLength: number;
  /** The job under way, if any; kept by the engine. */
  task: Task | undefined;
  released = false;

  constructor(
    private readonly engine: Engine,
    length: number,
    exactLength: number,
  ) {
    this.#length = length;
    this.#exactLength = exactLength;
  }

  get id(): SequenceId {
    if (this.#id === undefined) throw pocketError("BAD_ARGUMENT", "A sequence was used before it was made.");
    return this.#id;
  }

  get length(): number {
    return this.task?.filledLength ?? this.#length;
  }

  get exactLength(): number {
    return Math.min(this.#exactLength, this.length);
  }

  run(job: Job): AsyncGenerator<Generated, void, undefined> {
    return this.engine.start(this, job);
  }

  fork(length: number): SequencePort {
    return this.engine.fork(this, length);
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

  /** For the engine: what the native side says after an edit or a step. */
  record(length: number, exactLength: number): void {
    this.#length = length;
    this.#exactLength = exactLength;
  }
}
