// The loop over steps: between two of them it applies the changes that were asked for, finds pages for answers
// that wait for one, takes out tasks whose readers have gone, plans, computes, and hands up what was sampled. Who
// may ask for what is engine.ts's; here everything has been allowed already.
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
  /** How long an answer that gave its cells up waits for room that is not the engine's to make; default 10,000. */
  readonly allocationTimeoutMs?: number;
  /** Called after every step, before its tokens rise. Must not throw. */
  readonly onStep?: (report: StepReport) => void;
}

/** So many failed steps in a row are not bad luck: the engine is broken and says so from then on. */
const failuresTolerated = 3;

export class Loop {
  readonly files: KvFiles;
  readonly stats: StepStats;
  readonly #pace: StepBudget;
  readonly #rowCosts = new RowCosts();
  readonly #patienceMs: number;
  /** Oldest first. */
  #tasks: Task[] = [];
  /** Cell changes asked for during a step, in order. */
  #changes: (() => void)[] = [];
  #steps = 0;
  #looping = false;
  #stepping = false;
  #stopped = false;
  #failures = 0;
  #broken: { readonly since: Date; readonly message: string } | undefined;
  #idle: (() => void)[] = [];
  /** No answer could go on since then; milliseconds of the monotonic clock. */
  #stuckSince: number | undefined;
  /** Ends a wait for somebody to let go of pages. */
  #wake: (() => void) | undefined;

  constructor(
    readonly runner: Runner,
    readonly info: RunnerInfo,
    options: EngineOptions,
    private readonly finished: (task: Task) => void,
  ) {
    this.files = new KvFiles(runner);
    this.stats = new StepStats(options.onStep ?? (() => undefined));
    this.#patienceMs = options.allocationTimeoutMs ?? 10_000;
    this.#pace = new StepBudget(options.stepTokens, options.gapMs ?? Number.POSITIVE_INFINITY);
  }

  get tasks(): readonly Task[] {
    return this.#tasks;
  }

  get broken(): { readonly since: Date; readonly message: string } | undefined {
    return this.#broken;
  }

  /** Applies the task's edit; one that is refused has changed nothing. */
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

  /** Background work waits with its edit for its first step. A refusal is recorded in `dropped`. */
  #splice(task: Task): void {
    try {
      this.runner.splice(task.sequence.id, task.cells);
      task.spliced = true;
    } catch (cause) {
      task.dropped = cause as Error;
    }
  }

  /** Resolves when the task is out of the engine. */
  async drop(task: Task, reason: Error): Promise<void> {
    if (task.sequence.task !== task) return;
    task.dropped ??= reason;
    if (this.#stepping) await new Promise<void>((resolve) => this.#changes.push(resolve));
    this.#sweep();
    this.#wake?.();
  }

  /** Now, or at the end of the step; `sequence` is of no more use if it fails then. */
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

  /** Ends every task with ENGINE_CLOSED; resolves when no step and no file is under way. */
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
      else await this.#makeRoom();
    }
    this.#looping = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Nobody can run: pages that files hold come back, or readers that have just ended let go, or somebody gives way. */
  async #makeRoom(): Promise<void> {
    if (this.files.any) {
      await this.files.next();
      return;
    }
    const now = performance.now();
    if (this.#stuckSince === undefined) {
      this.#stuckSince = now;
      await new Promise((resolve) => setImmediate(resolve));
      return;
    }
    const lost = resolveDeadlock(this, this.#tasks);
    if (!lost) return;
    const patience = this.#stuckSince + this.#patienceMs - now;
    if (lost.final && patience > 0) await this.#changeWithin(patience);
    else this.#finish(lost.task, lost.reason);
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

  /** Takes out the tasks whose reader has gone. */
  #sweep(): void {
    for (const task of this.#tasks.filter((candidate) => candidate.dropped)) this.#finish(task, task.dropped);
  }

  async #step(ready: readonly Task[]): Promise<void> {
    const work = this.#share(ready);
    if (work.length === 0) return;
    this.#stepping = true;
    this.#stuckSince = undefined;
    const start = performance.now();
    try {
      const result = await this.runner.step(work.map(({ task, count }) => task.entry(count)));
      this.#failures = 0;
      const depth = deepest(work.map(({ task }) => task));
      this.#observe(this.stats.report(work, result.outcomes, performance.now() - start), depth);
      this.#advance(work, result);
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

  #observe(report: StepReport, depth: number): void {
    this.#pace.observe({ ...report, depth });
    if (report.promptTokens + report.backgroundTokens > 0) return;
    this.#rowCosts.observe(report.draftTokens, report.ms);
  }

  #share(ready: readonly Task[]): ScheduledTask[] {
    const decoding = ready.filter((task) => task.decoding);
    this.#propose(decoding);
    const shares = planStep(ready, this.#pace.budget(decoding.length, deepest(ready)));
    const work = ready
      .map((task, place) => ({ task, count: shares[place]! }))
      .filter(({ count }) => count > 0);
    this.#steps++;
    for (const { task } of work) {
      task.servedAt = this.#steps;
      if (!task.spliced) this.#splice(task);
    }
    this.#sweep();
    return work.filter(({ task }) => !task.dropped);
  }

  /** Proposals change what a step computes, not who is in it: each answer has its cell already. */
  #propose(decoding: readonly Task[]): void {
    let rows = decoding.length;
    for (const task of decoding) {
      task.draft(rows, this.#rowCosts, () => this.runner.inspect(task.sequence.id).tokens);
      rows += task.draftTokens;
    }
  }

  #advance(work: readonly ScheduledTask[], { outcomes }: StepResult): void {
    for (const [place, { task, count }] of work.entries()) {
      const outcome = outcomes[place]!;
      if (outcome.failure) this.#finish(task, new PocketError("BROKEN_LOGITS", outcome.failure));
      else if (task.advance(count, outcome)) this.#finish(task);
    }
  }

  /** A step that throws has committed nothing: its tasks end, everybody else goes on. */
  #fail(cause: Error, tasks: readonly Task[]): void {
    this.stats.counts.stepsFailed++;
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
    this.#tasks = this.#tasks.filter((other) => other !== task);
    task.unwatch();
    try {
      if (task.spliced && !sequence.released) this.#close(task);
    } catch (cause) {
      sequence.fault = cause as Error;
    }
    sequence.task = undefined;
    this.finished(task);
    task.answer.end(failure);
  }

  /** Closes the open gaps of a job that ended, and cuts what is behind them unless it is to stay. */
  #close(task: Task): void {
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

/** Cells in front of the deepest prompt's next token; 0 where nobody reads a prompt. */
function deepest(tasks: readonly Task[]): number {
  return Math.max(0, ...tasks.filter((task) => !task.decoding).map((task) => task.filledLength));
}
