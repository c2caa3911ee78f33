// The interface of the native addon: every native call, typed. Only integers, typed arrays and small plain objects
// cross it. All ranges are [start, end). Native failures arrive as PocketError with a code of errors.ts.
import { createRequire } from "node:module";
import { isErrorCode, PocketError, pocketError } from "../errors.ts";

export type SequenceId = number;
export type KvType = "f32" | "f16" | "bf16" | "int8";

export interface ModelShape {
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocab: number;
  /** Maximum number of tokens of a sequence. */
  readonly context: number;
}

export interface ModelOptions extends ModelShape {
  /** Path of the ONNX graph; its external weights are in the same folder. */
  readonly graph: string;
  readonly ropeBase: number;
  /** Identifies what computed the keys; required for KV files. At most 120 characters. */
  readonly digest?: string;
}

export interface OpenOptions {
  readonly model: ModelOptions;
  /** Path of the ONNX Runtime library. */
  readonly runtime: string;
  readonly device: "cpu";
  readonly pages: number;
  /** Tokens per page; a multiple of 16. */
  readonly pageSize: number;
  readonly kvType: KvType;
  readonly threads: number;
  /** Highest instruction set that kernels may use; absent: the fastest of this machine. */
  readonly isa?: string;
}

export interface RunnerInfo extends ModelShape {
  readonly pages: number;
  readonly pageSize: number;
  readonly kvType: KvType;
  readonly kvBytes: number;
  readonly device: string;
  readonly isa: string;
  readonly threads: number;
  /** Maximum number of draft tokens of one sequence in a step. */
  readonly maxDraftTokens: number;
  readonly runtimeVersion: string;
}

/** Replaces cells [start, end) with `count` open ones. In coordinates before the edit. */
export interface CellSplice {
  readonly start: number;
  readonly end: number;
  readonly count: number;
}

export interface StepSampling {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly minP: number;
  readonly repetitionPenalty: number;
  readonly frequencyPenalty: number;
  readonly presencePenalty: number;
  /** 0 … 2^53 - 1. */
  readonly seed: number;
  /** Number of this token within its answer. */
  readonly draw: number;
  /** Index of the answer's first token; frequency and presence penalties count from here. */
  readonly generatedFrom: number;
  /** Number of alternatives to report, 0 … 100. Of the whole vocabulary, regardless of `mask`. */
  readonly top: number;
  /**
   * Bit `id % 32` of word `id / 32` is 1 where the token may be sampled. Ids beyond its end may not be. If no allowed
   * token has a finite logit, the outcome is a failure.
   */
  readonly mask?: Int32Array;
  /** False: the logprob of the sampled token is not computed and is NaN. Default: true. */
  readonly logprob?: boolean;
}

export interface StepEntry {
  readonly sequence: SequenceId;
  /** Fills the sequence's gap cells, front to back. At least one. */
  readonly tokens: Int32Array;
  /** Present only when these tokens close the last gap and the last of them is the sequence's last cell. */
  readonly sample?: StepSampling;
  /**
   * Draft of the sampled token and those after it; only with `sample` and without a mask. The draft tokens are computed
   * behind `tokens` in further cells, as many as free pages, context and RunnerInfo.maxDraftTokens (less
   * tokens.length - 1) allow. Each row is sampled with the draw that its token has without a draft, so the result does
   * not depend on the draft.
   */
  readonly draftTokens?: Int32Array;
  /** For each of `tokens` the id whose logprob after that token is reported, or -1. As long as `tokens`. */
  readonly targets?: Int32Array;
  /** Number of alternatives to report with each target, 0 … 100. */
  readonly targetTop?: number;
  /** True: reports the logprobs of all tokens for each target that is not -1. Used by benches only. */
  readonly distributions?: boolean;
}

export interface SampledToken {
  /** -1 if nothing was sampled. */
  readonly token: number;
  readonly logprob: number;
  readonly topTokens: Int32Array;
  readonly topLogprobs: Float32Array;
}

/** `token` is the last one sampled; it has no cell. */
export interface StepOutcome extends SampledToken {
  /**
   * With draft tokens: the accepted ones, in order, sampled before `token`. They have cells; the cells of the rejected
   * ones are cut.
   */
  readonly accepted?: readonly SampledToken[];
  /** With draft tokens: how many were computed. */
  readonly drafted?: number;
  /** One per target (NaN where it was -1); alternatives are flat arrays of targetTop per target. */
  readonly targetLogprobs: Float32Array;
  readonly targetTopTokens: Int32Array;
  readonly targetTopLogprobs: Float32Array;
  /**
   * If requested: (targets that are not -1, vocab), natural logarithms of the softmax of the raw logits, rounded to
   * float32; -Infinity where a logit is not finite. Four bytes a token: 608 KB per target at a vocabulary of 152,000,
   * allocated twice at the end of the step.
   */
  readonly distributions?: Float32Array;
  /** Why this entry has no sampled token (no finite logit). Other entries are not affected. */
  readonly failure?: string;
}

export interface StepResult {
  readonly outcomes: readonly StepOutcome[];
  readonly ms: number;
}

export interface SequenceInfo {
  readonly length: number;
  /** Cells that have slots but no keys yet. */
  readonly gapTokens: number;
  /** Number of leading cells equal to a cold prefill. */
  readonly exactLength: number;
  /** Number of distinct index - birth differences: query rotations per step and layer. */
  readonly deltas: number;
}

export interface RunnerStats {
  readonly pagesFree: number;
  readonly pagesUsed: number;
  readonly pages: number;
  readonly sequences: number;
  readonly cells: number;
  readonly gapTokens: number;
  readonly steps: number;
  readonly tokensComputed: number;
}

/**
 * Time spent in steps since `open`, by part. `graph` is a run of the whole graph; it contains one entry per node of
 * this project's operators under the name that models/ gave it, and those contain `norms` (norms and residual sums in
 * front of linear layers). `sampler` follows the graph. The rest of `graph` is ONNX Runtime and its own operators.
 */
export interface ProfileEntry {
  readonly name: string;
  readonly runs: number;
  /** Wall time of the thread that ran it, with waiting for other threads. */
  readonly ms: number;
}

export interface Cells {
  readonly slots: Int32Array;
  readonly births: Int32Array;
  readonly tokens: Int32Array;
  /** 1 where the key is written. */
  readonly filled: Uint8Array;
  /** With a layer: (length, kvHeads, headDim), the stored values as f32; keys are rotated for their birth. */
  readonly keys?: Float32Array;
  readonly values?: Float32Array;
}

/** During a step, calls that change cells throw ENGINE_BUSY. A call that throws has changed nothing. */
export interface Runner {
  describe(): RunnerInfo;
  newSequence(): SequenceId;
  /** Idempotent. */
  release(id: SequenceId): void;
  /** A new sequence that shares the pages of the first `length` cells, which must be filled. */
  fork(id: SequenceId, length: number): SequenceId;
  /** One edit: ordered, disjoint splices in coordinates before the edit. Bookkeeping only. Throws CACHE_FULL. */
  splice(id: SequenceId, splices: readonly CellSplice[]): void;
  /** Appends the filled cells [start, end) of `from`; births stay, so the cells are relocated. */
  adopt(id: SequenceId, from: SequenceId, start: number, end: number): void;
  step(entries: readonly StepEntry[]): Promise<StepResult>;
  sequence(id: SequenceId): SequenceInfo;
  stats(): RunnerStats;
  /** Totals since `open` in a fixed order: subtract two for the time between. Throws ENGINE_BUSY during a step. */
  profile(): readonly ProfileEntry[];
  /** Throws BAD_ARGUMENT with the list of broken invariants (docs/design.md), if any. */
  check(): void;
  inspect(id: SequenceId, layer?: number): Cells;
  /**
   * Writes the filled leading cells as they are now to a KV file, on a worker thread; allowed during a step. Their
   * pages stay allocated until it settles. Rejects with DISK_FULL, KV_FILE_UNWRITABLE.
   */
  save(id: SequenceId, file: string): Promise<void>;
  /** A new sequence from a KV file; allowed during a step. Rejects with KV_FILE_REFUSED, CACHE_FULL. */
  load(file: string): Promise<SequenceId>;
  /** Throws ENGINE_BUSY during a step, a save or a load. */
  close(): Promise<void>;
}

interface NativeModule {
  open(options: OpenOptions): Promise<Runner>;
}

/** Where the build puts the addon, relative to the package root. POCKET_ADDON names another file (scripts/sanitize). */
const addonPath = "build/addon/Release/pocket.node";

/** Loads graph, weights and pool on a worker thread. Rejects with RUNTIME_MISSING, RUNTIME_FAILED, OUT_OF_MEMORY. */
export async function openRunner(options: OpenOptions, packageRoot: string): Promise<Runner> {
  const file = process.env.POCKET_ADDON ?? `${packageRoot}/${addonPath}`;
  let native: NativeModule;
  try {
    native = createRequire(import.meta.url)(file) as NativeModule;
  } catch (cause) {
    throw pocketError("ADDON_MISSING", file, (cause as Error).message);
  }
  return guard(await native.open(options).catch(rethrow));
}

function rethrow(cause: unknown): never {
  const { code, message } = cause as { code?: unknown; message: string };
  throw isErrorCode(code) ? new PocketError(code, message) : cause;
}

/** The runner with every native failure, thrown or rejected, turned into a PocketError. */
function guard(runner: Runner): Runner {
  return new Proxy(runner, {
    get(target, key) {
      const method = Reflect.get(target, key) as unknown;
      if (typeof method !== "function") return method;
      return (...parameters: unknown[]) => {
        try {
          const result: unknown = method.apply(target, parameters);
          return result instanceof Promise ? result.catch(rethrow) : result;
        } catch (cause) {
          return rethrow(cause);
        }
      };
    },
  });
}
