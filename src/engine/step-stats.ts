// What the engine counts: tokens computed by kind, steps, answers put off. It adds up and reports each step to
// an observer, who makes gauges and histograms of it; it decides nothing.
import type { StepOutcome } from "./addon.ts";
import type { Task } from "./task.ts";

/** One finished step. */
export interface StepReport {
  /** Sequences in it. */
  readonly entries: number;
  readonly promptTokens: number;
  readonly decodeTokens: number;
  readonly backgroundTokens: number;
  /** Rows of proposals beside `decodeTokens`, and how many of them were right. */
  readonly draftTokens: number;
  readonly acceptedTokens: number;
  /** From the call to its answer, on the JavaScript thread's clock. */
  readonly ms: number;
}

export interface Counts {
  promptTokens: number;
  decodeTokens: number;
  backgroundTokens: number;
  draftTokens: number;
  acceptedTokens: number;
  stepsFailed: number;
  /** Times an answer had to wait for a page. */
  preemptions: number;
  saves: number;
  loads: number;
}

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

  /** Before the tasks advance: what they were decides what their tokens are. */
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
