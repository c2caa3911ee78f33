// The engine port: a job is one edit of one sequence and the answer generated after it. Types only.
import type { StepSampling } from "./addon.ts";

/** Replaces cells [start, end) with `tokens`. In coordinates before the edit; start = end inserts. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly tokens: Int32Array;
}

export type JobSampling = Omit<StepSampling, "draw" | "generatedFrom" | "top" | "mask" | "logprob">;

/** Always the most probable token; the seed has no effect. */
export const greedy: JobSampling = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  seed: 0,
};

/** Limits the next token of one answer. `accept` has been called with exactly the answer's tokens so far. */
export interface Constraint {
  /** As StepSampling.mask; undefined: any token is allowed. */
  mask(): Int32Array | undefined;
  accept(token: number): void;
  /** True: the answer ends with the last accepted token. */
  readonly terminated: boolean;
}

export interface Job {
  /** Ordered, disjoint, applied as one edit between two steps. The last cell must be among the new tokens. */
  readonly splices: readonly Splice[];
  readonly sampling: JobSampling;
  /** Tokens to generate; 0 computes the prompt only. */
  readonly maxTokens: number;
  /** Ids that end the answer; the id itself is reported but never becomes a cell. */
  readonly stopTokens: ReadonlySet<number>;
  /** `mask` is called right before each step that samples, `accept` right after it. */
  readonly constraint?: Constraint;
  /** Number of alternatives to report per token. */
  readonly top: number;
  /** False: logprobs are NaN and cost nothing. Default: true. */
  readonly logprobs?: boolean;
  /**
   * Prompt lookup: drafts tokens from the sequence's own text, so that one step may give several. The answer is the
   * same token by token, up to kernels whose last bits depend on the number of rows in a step. No effect on a
   * constrained answer. Default: false.
   */
  readonly lookup?: boolean;
  readonly signal?: AbortSignal;
  /**
   * Called between two steps when the pool has no page for the next token: releases one idle sequence and returns
   * whether there was one. Its pages may become free later, when its file is written. Default: there is none.
   */
  readonly evictIdle?: () => boolean;
  /** For a continued answer: number of its next token, and index in the sequence of its first token. */
  readonly draw?: number;
  readonly generatedFrom?: number;
  /**
   * Scheduled only in steps in which no other job has tokens to compute. Its edit is applied right before its first
   * step, so that a job that is cancelled earlier has changed nothing. Expected to be at most 128 tokens, so that it
   * delays others by one short step. With `maxTokens` 0 its last cell need not be the last of the sequence.
   */
  readonly background?: boolean;
  /**
   * What happens to cells behind an open gap when the job ends early. False: everything from the first open gap on is
   * cut. True: only the open cells are cut and the survivors behind them stay; read `tokens()` for what is resident.
   * Default: false.
   */
  readonly keepsSurvivors?: boolean;
}

export interface Alternative {
  readonly token: number;
  readonly logprob: number;
}

export interface Generated {
  readonly token: number;
  readonly logprob: number;
  readonly top: readonly Alternative[];
  /** An accepted draft token: it cost no step of its own. */
  readonly drafted?: true;
  /** Number of draft tokens rejected in the step that sampled this token; absent: none. */
  readonly rejected?: number;
}

/** What the session room uses of the engine. */
export interface EnginePort {
  readonly context: number;
  readonly pageSize: number;
  /** Tokens the whole pool holds. */
  readonly capacity: number;
  readonly tokensFree: number;
  /** Jobs running or queued, without background jobs. */
  readonly busy: number;
  create(): SequencePort;
  /**
   * A new sequence with the cells that `save` wrote, births unchanged. The whole file is checked first. Rejects with
   * KV_FILE_REFUSED (missing, damaged, or of another model, layout or type), CACHE_FULL.
   */
  load(file: string): Promise<SequencePort>;
}

/**
 * One sequence. At most one job runs on it at a time. After a job, however it ended, the sequence holds the prompt and
 * all generated tokens but the last one, which has no cell. A job that ended early has open gaps; they are cut (see
 * `keepsSurvivors`), so that every cell of an idle sequence is filled.
 */
export interface SequencePort {
  /** Number of filled leading cells; current also while a job runs. */
  readonly length: number;
  /** Number of leading cells that equal a cold prefill; current also while a job runs. */
  readonly exactLength: number;
  readonly released: boolean;
  /** Tokens of the filled leading cells; a copy. */
  tokens(): Int32Array;
  /** Of the filled leading cells; a copy. Undefined before the native sequence exists and once it is released. */
  cells(): { readonly births: Int32Array; readonly slots: Int32Array } | undefined;
  /**
   * Yields one item per generated token. The edit is applied before the first await resolves. Rejects with CACHE_FULL:
   * before the first token nothing has changed; later the answer can be continued (`draw`, `generatedFrom`) when pages
   * are free. CACHE_TOO_SMALL: the pool cannot hold the answer, and its cells are gone. CANCELLED, ENGINE_BROKEN.
   */
  run(job: Job): AsyncGenerator<Generated, void, undefined>;
  /** A new sequence that shares the first `length` cells, which must be filled. */
  fork(length: number): SequencePort;
  /**
   * Appends the filled cells [start, end) of `from`: pages are shared, births stay, nothing is computed, and the cells
   * are never exact. Throws BAD_ARGUMENT while a job runs on this sequence, CONTEXT_LENGTH_EXCEEDED.
   */
  adopt(from: SequencePort, start: number, end: number): void;
  /**
   * Writes the filled leading cells as they are at the call to `file`, through a temporary file in the same folder.
   * Meanwhile steps run, and the sequence may change or be released; its pages stay allocated until the promise
   * settles. Rejects with DISK_FULL, KV_FILE_UNWRITABLE; `file` is then unchanged.
   */
  save(file: string): Promise<void>;
  /** Idempotent. */
  release(): void;
}
