// The step loop. Between two steps it applies the requested changes, allocates cells for preempted tasks, ends tasks
// whose consumer left, and forms the next batch; after a step it hands out the sampled tokens. engine.ts has validated
// every request before it comes here.
import { PocketError, pocketError } from "../errors.ts";
import type { Runner, RunnerInfo, StepResult } from "./addon.ts";
import { allocateAll, resolveDeadlock } from "./allocation.ts";
import { KvFiles } from "./kv-files.ts";
import { RowCosts } from "./row-costs.ts";
import { planStep } from "./scheduler.ts";
import type { Sequence } from "./sequence.ts";
import { StepBudget } from "./step-budget.ts";
import { type ScheduledTask, type StepReport, StepStats } from "./step-stats.ts";
import type { Task } from "./task.ts";

export interface EngineOptions {
  /** Tokens computed per step, over all sequences, while no answer streams. */
  readonly stepTokens: number;
  /** Target for a step while an answer streams, in milliseconds; prompts then get what fits. Absent: no target. */
  readonly gapMs?: number;
  /**
   * How long a request without cells waits for pages that only callers can release, in milliseconds. Default: 10,000.
   */
  readonly allocationTimeoutMs?: number;
  /** Called after every step, before its tokens are handed out. Must not throw. */
  readonly onStep?: (report: StepReport) => void;
}

/** After this many failed steps in a row the engine is broken and refuses all jobs. */
const maxFailures = 3;

export class Loop {
  readonly files: KvFiles;
  readonly stats: StepStats;
  readonly #budget: StepBudget;
  readonly #rowCosts = new RowCosts();
  readonly #allocationTimeoutMs: number;
  /** Oldest first. */
  #tasks: Task[] = [];
  /** Changes requested during a step, in order. */
  #changes: (() => void)[] = [];
  #steps = 0;
  #looping = false;
  #stepping = false;
  #stopped = false;
  #failures = 0;
  #broken: { readonly since: Date; readonly message: string } | undefined;
  /** Called when the loop has no task left. */
  #idle: (() => void)[] = [];
  /** Since when every task is preempted; milliseconds of the monotonic clock. */
  #stuckSince: number | undefined;
  /** Ends a wait for a change that may free pages. */
  #wake: (() => void) | undefined;

  constructor(
    readonly runner: Runner,
    readonly info: RunnerInfo,
    options: EngineOptions,
    private readonly finished: (task: Task) => void,
  ) {
    this.files = new KvFiles(runner);
    this.stats = new StepStats(options.onStep ?? (() => undefined));
    this.#allocationTimeoutMs = options.allocationTimeoutMs ?? 10_000;
    this.#budget = new StepBudget(options.stepTokens, options.gapMs ?? Number.POSITIVE_INFINITY);
  }

  get tasks(): readonly Task[] {
    return this.#tasks;
  }

  get broken(): { readonly since: Date; readonly message: string } | undefined {
    return this.#broken;
  }

  /** Applies the task's edit and starts the loop; an edit that is refused has changed nothing. */
  begin(task: Task): void {
    if (this.#stopped) task.dropped ??= pocketError("ENGINE_CLOSED");
    if (!task.dropped && !task.background) this.#splice(task);
    if (task.dropped) {
      this.#finish(task, task.dropped);
      return;
    }
    this.#tasks.push(task);
    if (!this.#looping) void this.#loop();
  }

  /** A refusal is recorded in `dropped`. The edit of a background task is applied at its first step. */
  #splice(task: Task): void {
    try {
      this.runner.splice(task.sequence.id, task.cells);
      task.spliced = true;
    } catch (cause) {
      task.dropped = cause as Error;
    }
  }

  /** Resolves when the task has ended. */
  async drop(task: Task, reason: Error): Promise<void> {
    if (task.sequence.task !== task) return;
    task.dropped ??= reason;
    if (this.#stepping) await new Promise<void>((resolve) => this.#changes.push(resolve));
    this.#sweep();
    this.#wake?.();
  }

  /** Applies `change` now, or at the end of the running step; if it fails then, `sequence` gets the fault. */
  change(change: () => void, sequence?: Sequence): void {
    if (!this.#stepping) {
      change();
      this.#wake?.();
      return;
    }
    this.#changes.push(() => {
      try {
        change();
      } catch (cause) {
        if (sequence) sequence.fault = cause as Error;
      }
    });
  }

  /** Ends every task with ENGINE_CLOSED; resolves when no step runs and no file is pending. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const task of this.#tasks) task.dropped ??= pocketError("ENGINE_CLOSED");
    if (!this.#stepping) this.#sweep();
    this.#wake?.();
    if (this.#looping) await new Promise<void>((resolve) => this.#idle.push(resolve));
    await this.files.all();
  }

  async #loop(): Promise<void> {
    this.#looping = true;
    while (this.#tasks.length > 0) {
      allocateAll(this, this.#tasks);
      this.#sweep();
      const ready = this.#tasks.filter((task) => !task.preempted);
      if (ready.length > 0) await this.#step(ready);
      else await this.#waitForPages();
    }
    this.#looping = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Every task is preempted: waits for a pending file, then for consumers that have just ended, then frees cells. */
  async #waitForPages(): Promise<void> {
    if (this.files.pending) {
      await this.files.next();
      return;
    }
    const now = performance.now();
    if (this.#stuckSince === undefined) {
      this.#stuckSince = now;
      await new Promise((resolve) => setImmediate(resolve));
      return;
    }
    const failed = resolveDeadlock(this, this.#tasks);
    if (!failed) return;
    const timeLeft = this.#stuckSince + this.#allocationTimeoutMs - now;
    if (failed.final && timeLeft > 0) await this.#changeWithin(timeLeft);
    else this.#finish(failed.task, failed.reason);
  }

  async #changeWithin(ms: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
    this.#wake = undefined;
  }

  /** Ends the tasks that were dropped. */
  #sweep(): void {
    for (const task of this.#tasks.filter((candidate) => candidate.dropped)) this.#finish(task, task.dropped);
  }

  async #step(ready: readonly Task[]): Promise<void> {
    const batch = this.#schedule(ready);
    if (batch.length === 0) return;
    this.#stepping = true;
    this.#stuckSince = undefined;
    const start = performance.now();
    try {
      const result = await this.runner.step(batch.map(({ task, count }) => task.entry(count)));
      this.#failures = 0;
      const depth = deepest(batch.map(({ task }) => task));
      this.#observe(this.stats.report(batch, result.outcomes, performance.now() - start), depth);
      this.#advance(batch, result);
    } catch (cause) {
      this.#fail(
        cause as Error,
        batch.map(({ task }) => task),
      );
    }
    // No await between here and the next step, so the changes keep their order.
    this.#stepping = false;
    for (const change of this.#changes.splice(0)) change();
    this.#sweep();
  }

  #observe(report: StepReport, depth: number): void {
    this.#budget.observe({ ...report, depth });
    if (report.promptTokens + report.backgroundTokens > 0) return;
    this.#rowCosts.observe(report.draftTokens, report.ms);
  }

  #schedule(ready: readonly Task[]): ScheduledTask[] {
    const decoding = ready.filter((task) => task.decoding);
    this.#draft(decoding);
    const shares = planStep(ready, this.#budget.budget(decoding.length, deepest(ready)));
    const batch = ready
      .map((task, index) => ({ task, count: shares[index]! }))
      .filter(({ count }) => count > 0);
    this.#steps++;
    for (const { task } of batch) {
      task.servedAt = this.#steps;
      if (!task.spliced) this.#splice(task);
    }
    this.#sweep();
    return batch.filter(({ task }) => !task.dropped);
  }

  /** Drafts change what a step computes, not which tasks are in it: each decode has its next cell already. */
  #draft(decoding: readonly Task[]): void {
    let rows = decoding.length;
    for (const task of decoding) {
      task.draft(rows, this.#rowCosts, () => this.runner.inspect(task.sequence.id).tokens);
      rows += task.draftTokens;
    }
  }

  #advance(batch: readonly ScheduledTask[], { outcomes }: StepResult): void {
    for (const [index, { task, count }] of batch.entries()) {
      const outcome = outcomes[index]!;
      if (outcome.failure) this.#finish(task, new PocketError("BROKEN_LOGITS", outcome.failure));
      else if (task.advance(count, outcome)) this.#finish(task);
    }
  }

  /** A step that throws has changed no cell: its tasks end, all others continue. */
  #fail(cause: Error, tasks: readonly Task[]): void {
    this.stats.counts.stepsFailed++;
    for (const task of tasks) this.#finish(task, cause);
    if (++this.#failures < maxFailures) return;
    this.#broken = { since: new Date(), message: cause.message };
    const error = pocketError("ENGINE_BROKEN", this.#broken.since.toISOString(), cause.message);
    for (const task of [...this.#tasks]) this.#finish(task, error);
  }

  /** Every task ends here: cuts cells without keys, records the length, ends the stream. */
  #finish(task: Task, failure?: Error): void {
    const { sequence } = task;
    if (sequence.task !== task) return;
    this.#tasks = this.#tasks.filter((other) => other !== task);
    task.unwatch();
    try {
      if (task.spliced && !sequence.released) this.#closeGaps(task);
    } catch (cause) {
      sequence.fault = cause as Error;
    }
    sequence.task = undefined;
    this.finished(task);
    task.answer.end(failure);
  }

  /** Cuts the open gaps of a job that ended and, unless it keeps survivors, everything behind the first of them. */
  #closeGaps(task: Task): void {
    const { id } = task.sequence;
    const open = task.openGaps();
    if (open.length > 0) {
      const { length } = this.runner.sequence(id);
      const cuts = task.job.keepsSurvivors ? open : [{ start: open[0]!.start, end: length }];
      this.runner.splice(
        id,
        cuts.map(({ start, end }) => ({ start, end, count: 0 })),
      );
    }
    task.sequence.record(this.runner.sequence(id).length);
  }
}

/** Cells in front of the deepest prompt's next token; 0 if no task reads a prompt. */
function deepest(tasks: readonly Task[]): number {
  return Math.max(0, ...tasks.filter((task) => !task.decoding).map((task) => task.filledLength));
}
