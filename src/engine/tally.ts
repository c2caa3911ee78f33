// What the engine counts: tokens computed by kind, steps, answers put off. It adds up and reports each step to
// an observer, who makes gauges and histograms of it; it decides nothing.
import type { Task } from "./task.ts";

/** One finished step. */
export interface StepReport {
  /** Sequences in it. */
  readonly entries: number;
  readonly promptTokens: number;
  readonly decodeTokens: number;
  readonly backgroundTokens: number;
  /** From the call to its answer, on the JavaScript thread's clock. */
  readonly ms: number;
}

export interface Counts {
  promptTokens: number;
  decodeTokens: number;
  backgroundTokens: number;
  stepsFailed: number;
  /** Times an answer had to wait for a page. */
  parkings: number;
  /** Times an answer gave its cells up and was read again; the tokens are among `promptTokens`. */
  givenUp: number;
  saves: number;
  loads: number;
}

export interface Share {
  readonly task: Task;
  readonly count: number;
}

export class Tally {
  readonly counts: Counts = {
    promptTokens: 0,
    decodeTokens: 0,
    backgroundTokens: 0,
    stepsFailed: 0,
    parkings: 0,
    givenUp: 0,
    saves: 0,
    loads: 0,
  };

  constructor(private readonly observe: (report: StepReport) => void) {}

  /** Before the tasks advance: what they were decides what their tokens are. */
  report(work: readonly Share[], ms: number): StepReport {
    const kinds = { promptTokens: 0, decodeTokens: 0, backgroundTokens: 0 };
    for (const { task, count } of work) {
      if (task.background) kinds.backgroundTokens += count;
      else if (task.decoding) kinds.decodeTokens += count;
      else kinds.promptTokens += count;
    }
    this.counts.promptTokens += kinds.promptTokens;
    this.counts.decodeTokens += kinds.decodeTokens;
    this.counts.backgroundTokens += kinds.backgroundTokens;
    const report = { entries: work.length, ...kinds, ms };
    this.observe(report);
    return report;
  }
}
