// What may be asked of the engine: one edit of one sequence, and the answer that follows it.
import type { StepSampling } from "./addon.ts";

/** Cut [start, end) of the sequence and put `tokens` there. Old coordinates; start = end inserts only. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly tokens: Int32Array;
}

export type JobSampling = Omit<StepSampling, "draw" | "generatedFrom" | "top">;

export interface Job {
  /** Ordered, disjoint, applied as one edit between two steps. The last cell must be among the new tokens. */
  readonly splices: readonly Splice[];
  readonly sampling: JobSampling;
  /** Tokens to generate; 0 computes the prompt only. */
  readonly maxTokens: number;
  /** Ids that end the answer; the id itself is reported, and never becomes a cell. */
  readonly stopTokens: ReadonlySet<number>;
  /** Alternatives to report per token. */
  readonly top: number;
  readonly signal?: AbortSignal;
}

export interface Alternative {
  readonly token: number;
  readonly logprob: number;
}

export interface Generated {
  readonly token: number;
  readonly logprob: number;
  readonly top: readonly Alternative[];
}

/** What the session layer sees of the engine. */
export interface EnginePort {
  readonly context: number;
  readonly pageSize: number;
  /** Tokens the whole pool holds. */
  readonly capacity: number;
  readonly tokensFree: number;
  create(): SequencePort;
}

/**
 * One sequence. At most one job runs on it at a time. When a job ends, by its end, an error or the signal,
 * the sequence holds the prompt and every generated token that was fed back: all but the last sampled one.
 * A job that was cut short leaves gaps behind; `length` counts filled leading cells only, since the rest
 * was cut.
 */
export interface SequencePort {
  readonly length: number;
  readonly exactLength: number;
  /** Distinct pages held are not shared out; this is cells, for accounting. */
  readonly released: boolean;
  /**
   * Yields one item per generated token. Rejects with CACHE_FULL (nothing changed), CANCELLED, ENGINE_BROKEN.
   * The edit is applied before the first await resolves.
   */
  run(job: Job): AsyncGenerator<Generated, void, undefined>;
  /** A new sequence that shares the first `length` cells. */
  fork(length: number): SequencePort;
  /** Idempotent. */
  release(): void;
}
