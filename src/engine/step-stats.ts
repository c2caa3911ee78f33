// Counters of the engine: tokens computed by kind, failed steps, preemptions, files. Each finished step is reported
// to an observer, which makes gauges and histograms of it.
import type { StepOutcome } from "./addon.ts";
import type { Task } from "./task.ts";

/** One finished step. */
export interface StepReport {
  /** Sequences in it. */
  readonly entries: number;
  readonly promptTokens: number;
  readonly decodeTokens: number;
  readonly backgroundTokens: number;
  /** Draft rows, which `decodeTokens` does not include, and how many of them were accepted. */
  readonly draftTokens: number;
  readonly acceptedTokens: number;
  /** From the native call to its result, on the clock of the JavaScript thread. */
  readonly ms: number;
}

export interface Counts {
  promptTokens: number;
  decodeTokens: number;
  backgroundTokens: number;
  draftTokens: number;
  acceptedTokens: number;
  stepsFailed: number;
  /** Times a request had to wait for a page. A request that is recomputed counts its tokens in `promptTokens` again. */
  preemptions: number;
  saves: number;
  loads: number;
}

/** A task and the number of its pending tokens that the step computes. */
export interface ScheduledTask {
  readonly task: Task;
  readonly count: number;
}

export class StepStats {
  readonly counts: Counts = {
    promptTokens: 0,
    decodeTokens: 0,
    backgroundTokens: 0,
    draftTokens: 0,
    acceptedTokens: 0,
    stepsFailed: 0,
    preemptions: 0,
    saves: 0,
    loads: 0,
  };

  constructor(private readonly observe: (report: StepReport) => void) {}

  /** Call before the tasks advance: the state of a task says of which kind its tokens are. */
  report(work: readonly ScheduledTask[], outcomes: readonly StepOutcome[], ms: number): StepReport {
    const kinds = {
      promptTokens: 0,
      decodeTokens: 0,
      backgroundTokens: 0,
      draftTokens: 0,
      acceptedTokens: 0,
    };
    for (const { task, count } of work) {
      if (task.background) kinds.backgroundTokens += count;
      else if (task.decoding) kinds.decodeTokens += count;
      else kinds.promptTokens += count;
    }
    for (const { drafted = 0, accepted = [] } of outcomes) {
      kinds.draftTokens += drafted;
      kinds.acceptedTokens += accepted.length;
    }
    for (const kind of Object.keys(kinds) as (keyof typeof kinds)[]) this.counts[kind] += kinds[kind];
    const report = { entries: work.length, ...kinds, ms };
    this.observe(report);
    return report;
  }
}
