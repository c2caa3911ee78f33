// The engine port: jobs, forks, adopted cells, KV files, releases. Requests are validated here and applied by the loop
// between two steps. All bookkeeping happens on the JavaScript thread; only steps and files run on other threads.
import { pocketError } from "../errors.ts";
import type { Cells, Runner, RunnerInfo, RunnerStats } from "./addon.ts";
import type { EnginePort, Generated, Job, SequencePort } from "./job.ts";
import { type EngineOptions, Loop } from "./loop.ts";
import { Sequence } from "./sequence.ts";
import type { Counts } from "./step-stats.ts";
import { Task } from "./task.ts";
import { TokenStream } from "./token-stream.ts";

export type { EngineOptions } from "./loop.ts";

export interface EngineStats extends RunnerStats, Readonly<Counts> {
  /** Jobs that have begun, preempted ones included. */
  readonly running: number;
  /** Of those, jobs that wait for a page. */
  readonly preempted: number;
  /** Jobs whose edit waits for the end of the running step. */
  readonly queued: number;
}

export class Engine implements EnginePort {
  readonly info: RunnerInfo;
  readonly #loop: Loop;
  /** Jobs that have not ended, and those of them that are not background jobs. */
  #jobs = 0;
  #foreground = 0;
  #closed = false;

  constructor(
    private readonly runner: Runner,
    options: EngineOptions,
  ) {
    this.info = runner.describe();
    this.#loop = new Loop(runner, this.info, options, (task) => {
      this.#jobs--;
      this.#foreground -= task.background ? 0 : 1;
    });
  }

  get context(): number {
    return this.info.context;
  }

  get pageSize(): number {
    return this.info.pageSize;
  }

  get capacity(): number {
    return this.info.pages * this.info.pageSize;
  }

  get tokensFree(): number {
    return this.runner.stats().pagesFree * this.info.pageSize;
  }

  get busy(): number {
    return this.#foreground;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get broken(): { readonly since: Date; readonly message: string } | undefined {
    return this.#loop.broken;
  }

  stats(): EngineStats {
    const { tasks } = this.#loop;
    return {
      ...this.runner.stats(),
      ...this.#loop.stats.counts,
      running: tasks.length,
      preempted: tasks.filter((task) => task.preempted).length,
      queued: this.#jobs - tasks.length,
    };
  }

  exactLength(sequence: Sequence): number {
    return this.runner.sequence(sequence.id).exactLength;
  }

  /** A copy. Allowed during a step, which changes no cell before its end. */
  cells(sequence: Sequence): Cells {
    return this.runner.inspect(sequence.id);
  }

  create(): SequencePort {
    const sequence = new Sequence(this, 0, 0);
    this.#loop.change(() => sequence.bind(this.runner.newSequence()), sequence);
    return sequence;
  }

  /** Queues the job; its edit is applied before the next step. */
  start(sequence: Sequence, job: Job): AsyncGenerator<Generated, void, undefined> {
    this.#refuse(sequence);
    const answer: TokenStream = new TokenStream(() => this.#loop.drop(task, pocketError("CANCELLED")));
    const task = new Task(sequence, job, answer, sequence.length);
    sequence.task = task;
    this.#foreground += task.background ? 0 : 1;
    this.#jobs++;
    task.watch(() => void this.#loop.drop(task, pocketError("CANCELLED")));
    this.#loop.change(() => this.#loop.begin(task), sequence);
    return answer;
  }

  fork(sequence: Sequence, length: number): SequencePort {
    if (length > sequence.length) {
      throw pocketError(
        "BAD_ARGUMENT",
        `A fork of ${length} cells needs as many filled cells; the sequence has ${sequence.length}.`,
      );
    }
    const child = new Sequence(this, length, Math.min(length, sequence.exactLength));
    this.#loop.change(() => child.bind(this.runner.fork(sequence.id, length)), child);
    return child;
  }

  adopt(sequence: Sequence, from: Sequence, start: number, end: number): void {
    this.#refuse(sequence);
    if (from.released || !(start >= 0 && start <= end && end <= from.length)) {
      throw pocketError("BAD_ARGUMENT", `Cells [${start}, ${end}) of ${from.length} cannot be adopted.`);
    }
    const length = sequence.length + end - start;
    if (length > this.context) {
      throw pocketError(
        "CONTEXT_LENGTH_EXCEEDED",
        this.context,
        length,
        "the sequence with the adopted cells",
      );
    }
    this.#loop.change(() => this.runner.adopt(sequence.id, from.id, start, end), sequence);
    sequence.record(length);
  }

  async save(sequence: Sequence, file: string): Promise<void> {
    if (sequence.released) throw pocketError("BAD_ARGUMENT", "A released sequence cannot be saved.");
    await new Promise<void>((resolve, reject) => {
      // Starts after the changes requested earlier; from then on the native side keeps the cells itself.
      const save = () => this.#loop.files.save(sequence, file).then(resolve, reject);
      this.#loop.change(() => void save());
    });
    this.#loop.stats.counts.saves++;
  }

  async load(file: string): Promise<SequencePort> {
    this.#refuseAll();
    const id = await this.#loop.files.load(file);
    const { length, exactLength } = this.runner.sequence(id);
    const sequence = new Sequence(this, length, exactLength);
    sequence.bind(id);
    this.#loop.stats.counts.loads++;
    return sequence;
  }

  release(sequence: Sequence): void {
    // Only `start` sets it.
    const task = sequence.task as Task | undefined;
    if (task) void this.#loop.drop(task, pocketError("CANCELLED"));
    this.#loop.change(() => {
      if (sequence.bound && !this.#closed) this.runner.release(sequence.id);
    });
  }

  /** Ends all jobs with ENGINE_CLOSED, waits for the running step and pending files, frees the model and the pool. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#loop.stop();
    await this.runner.close();
  }

  #refuseAll(): void {
    if (this.#closed) throw pocketError("ENGINE_CLOSED");
    const { broken } = this.#loop;
    if (broken) throw pocketError("ENGINE_BROKEN", broken.since.toISOString(), broken.message);
  }

  #refuse(sequence: Sequence): void {
    this.#refuseAll();
    if (sequence.fault) throw sequence.fault;
    if (sequence.released) throw pocketError("BAD_ARGUMENT", "A released sequence cannot be used.");
    if (sequence.task) throw pocketError("BAD_ARGUMENT", "A sequence runs one job at a time.");
  }
}
