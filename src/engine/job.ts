// What may be asked of the engine: one edit of one sequence, and the answer that follows it.
import type { StepSampling } from "./addon.ts";

/** Cut [start, end) of the sequence and put `tokens` there. Old coordinates; start = end inserts only. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly tokens: Int32Array;
}

export type JobSampling = Omit<StepSampling, "draw" | "generatedFrom" | "top" | "mask" | "logprob">;

/** Takes the likeliest token; nothing is drawn. */
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

/** Which tokens an answer may go on with. It has accepted exactly the answer's tokens so far. */
export interface Constraint {
  /** As StepSampling.mask; undefined: any token. */
  mask(): Int32Array | undefined;
  accept(token: number): void;
  /** Nothing may follow the last token. */
  readonly terminated: boolean;
}

export interface Job {
  /** Ordered, disjoint, applied as one edit between two steps. The last cell must be among the new tokens. */
  readonly splices: readonly Splice[];
  readonly sampling: JobSampling;
  /** Tokens to generate; 0 computes the prompt only. */
  readonly maxTokens: number;
  /** Ids that end the answer; the id itself is reported, and never becomes a cell. */
  readonly stopTokens: ReadonlySet<number>;
  /** Asked for a mask right before each step that samples, and told the token right after it. */
  readonly constraint?: Constraint;
  /** Alternatives to report per token. */
  readonly top: number;
  /** False: logprobs are NaN, and cost nothing. Default: true. */
  readonly logprobs?: boolean;
  /**
   * Whether tokens may be proposed from the sequence's own text and computed several in a step. The answer is the same
   * token by token; see README.md for what that means with kernels whose last bits depend on the rows of a step.
   * Without effect for a constrained answer. Default: false.
   */
  readonly lookup?: boolean;
  readonly signal?: AbortSignal;
  /**
   * Called between two steps when the pool has no page for the next token: releases one idle sequence and returns
   * whether there was one. Its pages may become free later, when its file is written. Default: there is none.
   */
  readonly evictIdle?: () => boolean;
  /** For an answer that goes on: number of its next token, and index of its first. */
  readonly draw?: number;
  readonly generatedFrom?: number;
  /**
   * Planned only in steps in which no other job has anything to compute. Its edit is applied right before its
   * first step, so that a job that is left earlier has changed nothing. Expected to be one chunk of at most 128
   * tokens, so that it is put off within one step. With `maxTokens` 0 its last cell need not be the sequence's.
   */
  readonly background?: boolean;
  /**
   * What happens to cells behind an open gap when the job ends early. By default everything from the first open
   * gap on is cut and `length` alone says what is resident. With true only the open cells are: survivors behind
   * them stay, and `tokens()` says what is resident.
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
  /** It had been proposed, and cost no step of its own. */
  readonly drafted?: true;
  /** Proposals that this token, sampled behind the accepted ones, has shown to be wrong; absent: none. */
  readonly rejected?: number;
}

/** What the session layer sees of the engine. */
export interface EnginePort {
  readonly context: number;
  readonly pageSize: number;
  /** Tokens the whole pool holds. */
  readonly capacity: number;
  readonly tokensFree: number;
  /** Jobs running or queued, background ones aside. */
  readonly busy: number;
  create(): SequencePort;
  /**
   * A new sequence with the cells that `save` wrote, births as they were. Nothing of it exists before the whole
   * file has been checked. Rejects with KV_FILE_REFUSED (missing, damaged, or of another model, layout or type),
   * CACHE_FULL.
   */
  load(file: string): Promise<SequencePort>;
}

/**
 * One sequence. At most one job runs on it at a time. When a job ends, by its end, an error or the signal,
 * the sequence holds the prompt and every generated token that was fed back: all but the last sampled one.
 * A job that was cut short leaves gaps behind; they are cut (see `keepsSurvivors`), so that every cell of an
 * idle sequence is filled.
 */
export interface SequencePort {
  /** Filled leading cells, up to the moment also while a job runs. */
  readonly length: number;
  /** Leading cells that equal a cold prefill, up to the moment also while a job runs. */
  readonly exactLength: number;
  readonly released: boolean;
  /** Tokens of the filled leading cells; a copy. */
  tokens(): Int32Array;
  /** Of the filled leading cells, for a map; a copy. Undefined before the sequence is made and once it is released. */
  cells(): { readonly births: Int32Array; readonly slots: Int32Array } | undefined;
  /**
   * Yields one item per generated token. Rejects with CACHE_FULL, CANCELLED, ENGINE_BROKEN. The edit is applied
   * before the first await resolves. CACHE_FULL before the first token has changed nothing; later it means that
   * the answer may go on where it was (`draw`, `generatedFrom`) once there is room. CACHE_TOO_SMALL after a
   * token: the pool cannot hold the answer; the cells are gone.
   */
  run(job: Job): AsyncGenerator<Generated, void, undefined>;
  /** A new sequence that shares the first `length` cells. */
  fork(length: number): SequencePort;
  /**
   * Appends the filled cells [start, end) of `from`, pages shared, births as they are: nothing is computed, and
   * they are never exact. Throws BAD_ARGUMENT while a job runs here, CONTEXT_LENGTH_EXCEEDED.
   */
  adopt(from: SequencePort, start: number, end: number): void;
  /**
   * Writes the filled leading cells to `file` by way of a temporary name beside it. Steps go on meanwhile, and
   * the sequence may change or be released: what is written is what it was at the call. Its pages stay lent
   * until the promise settles. Rejects with DISK_FULL, KV_FILE_UNWRITABLE; `file` is then as it was.
   */
  save(file: string): Promise<void>;
  /** Idempotent. */
  release(): void;
}
