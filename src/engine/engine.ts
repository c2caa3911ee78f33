// The loop that owns the runner (design §7.5): between two steps it applies what was asked for (edits, forks,
// releases, departures), plans the next step, computes it, and hands up what was sampled. All bookkeeping
// happens on the JavaScript thread; only the step itself runs elsewhere. It knows tokens, never text.
import { PocketError, pocketError } from "../errors.ts";
import type { Runner, RunnerInfo, RunnerStats } from "./addon.ts";
import { Answer } from "./answer.ts";
import type { EnginePort, Generated, Job, SequencePort } from "./job.ts";
import { plan } from "./plan.ts";
import { Sequence } from "./sequence.ts";
import { Task } from "./task.ts";

export interface EngineOptions {
  /** Tokens computed per step, over all sequences. */
  readonly stepTokens: number;
}

/** So many failed steps in a row are not bad luck: the engine is broken and says so from then on. */
const failuresTolerated = 3;

export class Engine implements EnginePort {
  readonly info: RunnerInfo;
  #tasks: Task[] = [];
  /** Cell changes asked for during a step, in order. */
  #changes: (() => void)[] = [];
  #looping = false;
  #stepping = false;
  #failures = 0;
  #broken: { readonly since: Date; readonly message: string } | undefined;
  #closed = false;
  #idle: (() => void)[] = [];

  constructor(
    private readonly runner: Runner,
    private readonly options: EngineOptions,
  ) {
    this.info = runner.describe();
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

  get broken(): { readonly since: Date; readonly message: string } | undefined {
    return this.#broken;
  }

  stats(): RunnerStats & { readonly running: number } {
    return { ...this.runner.stats(), running: this.#tasks.length };
  }

  create(): SequencePort {
    const sequence = new Sequence(this, 0, 0);
    this.#change(() => sequence.bind(this.runner.newSequence()));
    return sequence;
  }

  /** Queues the job; its edit is applied before the next step. */
  start(sequence: Sequence, job: Job): AsyncGenerator<Generated, void, undefined> {
    this.#refuse(sequence);
    const answer: Answer = new Answer(() => this.#drop(task, pocketError("CANCELLED")));
    const task = new Task(sequence, job, answer, sequence.length);
    sequence.task = task;
    task.watch(() => void this.#drop(task, pocketError("CANCELLED")));
    this.#change(() => this.#begin(task));
    return answer;
  }

  fork(sequence: Sequence, length: number): SequencePort {
    if (length > sequence.length) {
      throw pocketError(
        "BAD_ARGUMENT",
        `A fork of ${length} cells was asked of a sequence with ${sequence.length} filled.`,
      );
    }
    const child = new Sequence(this, length, Math.min(length, sequence.exactLength));
    this.#change(() => child.bind(this.runner.fork(sequence.id, length)));
    return child;
  }

  release(sequence: Sequence): void {
    const task = sequence.task;
    if (task) void this.#drop(task, pocketError("CANCELLED"));
    this.#change(() => {
      if (sequence.bound) this.runner.release(sequence.id);
    });
  }

  /** Ends what runs with ENGINE_CLOSED, waits for the step under way, frees the model and the pool. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const task of this.#tasks) task.dropped ??= pocketError("ENGINE_CLOSED");
    if (this.#looping) await new Promise<void>((resolve) => this.#idle.push(resolve));
    await this.runner.close();
  }

  /** Applies the task's edit; one that is refused has changed nothing. */
  #begin(task: Task): void {
    try {
      if (!task.dropped) this.runner.splice(task.sequence.id, task.cells);
    } catch (cause) {
      task.dropped = cause as Error;
    }
    if (task.dropped) {
      this.#finish(task, task.dropped);
      return;
    }
    this.#tasks.push(task);
    if (!this.#looping) void this.#loop();
  }

  #refuse(sequence: Sequence): void {
    if (this.#closed) throw pocketError("ENGINE_CLOSED");
    if (this.#broken)
      throw pocketError("ENGINE_BROKEN", this.#broken.since.toISOString(), this.#broken.message);
    if (sequence.released) throw pocketError("BAD_ARGUMENT", "A released sequence was asked to run.");
    if (sequence.task) throw pocketError("BAD_ARGUMENT", "A sequence runs one job at a time.");
  }

  /** Resolves when the task is out of the engine. */
  async #drop(task: Task, reason: Error): Promise<void> {
    if (task.sequence.task !== task) return;
    task.dropped ??= reason;
    if (this.#stepping) await new Promise<void>((resolve) => this.#changes.push(resolve));
    this.#sweep();
  }

  #change(change: () => void): void {
    if (this.#stepping) this.#changes.push(change);
    else change();
  }

  async #loop(): Promise<void> {
    this.#looping = true;
    while (this.#tasks.length > 0) {
      await this.#step();
    }
    this.#looping = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Takes out the tasks whose reader has gone. */
  #sweep(): void {
    for (const task of this.#tasks.filter((candidate) => candidate.dropped)) this.#finish(task, task.dropped);
  }

  async #step(): Promise<void> {
    const shares = plan(this.#tasks, this.options.stepTokens);
    const work = this.#tasks
      .map((task, place) => ({ task, count: shares[place]! }))
      .filter(({ count }) => count > 0);
    this.#stepping = true;
    try {
      const { outcomes } = await this.runner.step(work.map(({ task, count }) => task.entry(count)));
      this.#failures = 0;
      for (const [place, { task, count }] of work.entries()) {
        const outcome = outcomes[place]!;
        if (outcome.failure) this.#finish(task, new PocketError("BROKEN_LOGITS", outcome.failure));
        else this.#advance(task, outcome.token, task.advance(count, outcome));
      }
    } catch (cause) {
      this.#fail(
        cause as Error,
        work.map(({ task }) => task),
      );
    }
    // From here to the next await nobody else runs, so the changes keep their order.
    this.#stepping = false;
    for (const change of this.#changes.splice(0)) change();
    this.#sweep();
  }

  #advance(task: Task, token: number, complete: boolean): void {
    if (complete) {
      this.#finish(task);
      return;
    }
    if (task.pending > 0) return;
    try {
      this.runner.splice(task.sequence.id, [task.feed(token)]);
    } catch (cause) {
      this.#finish(task, cause as Error);
    }
  }

  /** A step that throws has committed nothing: its tasks end, everybody else goes on. */
  #fail(cause: Error, tasks: readonly Task[]): void {
    for (const task of tasks) this.#finish(task, cause);
    if (++this.#failures < failuresTolerated) return;
    this.#broken = { since: new Date(), message: cause.message };
    const error = pocketError("ENGINE_BROKEN", this.#broken.since.toISOString(), cause.message);
    for (const task of [...this.#tasks]) this.#finish(task, error);
  }

  /** The one way out for a task: cut what has no keys, record what is left, tell the reader. */
  #finish(task: Task, failure?: Error): void {
    const { sequence } = task;
    if (sequence.task !== task) return;
    const filled = task.filledLength;
    const spliced = this.#tasks.includes(task);
    this.#tasks = this.#tasks.filter((other) => other !== task);
    task.unwatch();
    sequence.task = undefined;
    if (spliced && !sequence.released) {
      const { length } = this.runner.sequence(sequence.id);
      if (length > filled) this.runner.splice(sequence.id, [{ start: filled, end: length, count: 0 }]);
      const { exactLength } = this.runner.sequence(sequence.id);
      sequence.record(filled, exactLength);
    }
    task.answer.end(failure);
  }
}
