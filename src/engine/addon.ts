// The floor (design §5): every native call, typed. Only integers, typed arrays and small plain objects cross.
// All ranges are [start, end). Native failures arrive as PocketError with a code of errors.ts.
import { createRequire } from "node:module";
import { isErrorCode, PocketError, pocketError } from "../errors.ts";

export type SequenceId = number;
export type KvType = "f32" | "f16" | "bf16" | "int8";

export interface OpenOptions {
  readonly model: {
    /** Path of the ONNX graph; its external weights lie beside it. */
    readonly graph: string;
    readonly layers: number;
    readonly heads: number;
    readonly kvHeads: number;
    readonly headDim: number;
    readonly vocab: number;
    /** Tokens a sequence may have. */
    readonly context: number;
    readonly ropeBase: number;
    /** Names what the keys were computed with; stands in KV files, which need one. At most 120 characters. */
    readonly digest?: string;
  };
  /** Path of libonnxruntime. */
  readonly runtime: string;
  readonly device: "cpu";
  readonly pages: number;
  /** Tokens a page holds; a multiple of 16. */
  readonly pageSize: number;
  readonly kvType: KvType;
  readonly threads: number;
  /** Kernel set; absent: the fastest this machine has. */
  readonly isa?: string;
}

export interface RunnerInfo {
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocab: number;
  readonly context: number;
  readonly pages: number;
  readonly pageSize: number;
  readonly kvType: KvType;
  readonly kvBytes: number;
  readonly device: string;
  readonly isa: string;
  readonly threads: number;
  /** Proposals that a step computes of one sequence at most. */
  readonly maxDraftTokens: number;
  readonly runtimeVersion: string;
}

/** In old coordinates; `count` new cells open where [start, end) was. */
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
  /** Index of the answer's first token; penalties for frequency and presence look from here. */
  readonly generatedFrom: number;
  /** Alternatives to report, 0 … 100. They are those of the whole vocabulary, mask or not. */
  readonly top: number;
  /**
   * Bit `id % 32` of word `id / 32` is 1 where the token may be sampled. Ids beyond its end may not be. When none
   * that may has a finite logit, the outcome is a failure.
   */
  readonly mask?: Int32Array;
  /** False: the logprob of what is sampled is not worked out, and is NaN. Default: true. */
  readonly logprob?: boolean;
}

export interface StepEntry {
  readonly sequence: SequenceId;
  /** Fills the sequence's gap cells, front to back. At least one. */
  readonly tokens: Int32Array;
  /** Present only when these tokens close the last gap and the last of them is the sequence's last cell. */
  readonly sample?: StepSampling;
  /**
   * What the sampled token and those behind it may turn out to be; with `sample` and without a mask only. They are
   * computed behind `tokens` in cells of their own, as many as pages and context leave room for and `maxDraftTokens` of
   * RunnerInfo (less what `tokens` has beyond one) allows, and each row is sampled with the draw that it has token by
   * token: what comes out does not depend on what was proposed.
   */
  readonly draftTokens?: Int32Array;
  /** For each of `tokens` the id whose logprob after that token is wanted, or -1. As long as `tokens`. */
  readonly targets?: Int32Array;
  /** Alternatives to report with each target, 0 … 100. */
  readonly targetTop?: number;
  /** True: the logprobs of all tokens with each target that is not -1. For benches: no request asks for it. */
  readonly distributions?: boolean;
}

export interface SampledToken {
  /** -1 when nothing was sampled. */
  readonly token: number;
  readonly logprob: number;
  readonly topTokens: Int32Array;
  readonly topLogprobs: Float32Array;
}

/** The token is the last one sampled, which has no cell. */
export interface StepOutcome extends SampledToken {
  /**
   * With proposals: those that were sampled, in order, in front of `token`. They are cells now; the others are as if
   * they had not been proposed.
   */
  readonly accepted?: readonly SampledToken[];
  /** With proposals: how many were computed. */
  readonly drafted?: number;
  /** One per target (NaN where it was -1); alternatives follow each other, targetTop per target. */
  readonly targetLogprobs: Float32Array;
  readonly targetTopTokens: Int32Array;
  readonly targetTopLogprobs: Float32Array;
  /**
   * If asked for: (targets that are not -1, vocab), natural logarithms of the untouched softmax, rounded to float32;
   * -Infinity where a logit is not finite. Four bytes a token: 608 KB a target at a vocabulary of 152,000, twice while
   * the step ends.
   */
  readonly distributions?: Float32Array;
  /** Why this entry has no token although one was asked for (no finite logit). Others are not touched. */
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
  /** Leading cells equal to a cold prefill (design §2). */
  readonly exactLength: number;
  /** Distinct index - birth differences: query rotations per step and layer. */
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
 * Where steps spent their time since `open`. A model's parts are `graph` (a run of the graph as a whole), inside it each
 * node of our operators under the name that models/ gave it, inside those `norms` (norms and residual sums in front of
 * linear layers), and behind the graph `sampler` (whatever was wanted of the logits). What is missing from the graph is
 * ONNX Runtime and its own operators. Always counted.
 */
export interface ProfileEntry {
  readonly name: string;
  readonly runs: number;
  /** Of the thread that began it, waiting for the other threads included. */
  readonly ms: number;
}

export interface Cells {
  readonly slots: Int32Array;
  readonly births: Int32Array;
  readonly tokens: Int32Array;
  /** 1 where the key is written. */
  readonly filled: Uint8Array;
  /** With a layer: (length, kvHeads, headDim) as stored, widened to f32; keys as rotated at birth. */
  readonly keys?: Float32Array;
  readonly values?: Float32Array;
}

/** While a step runs, calls that change cells throw ENGINE_BUSY. A throwing call has changed nothing. */
export interface Runner {
  describe(): RunnerInfo;
  newSequence(): SequenceId;
  /** Idempotent. */
  release(id: SequenceId): void;
  /** A new sequence with the first `length` cells, pages shared. They must be filled. */
  fork(id: SequenceId, length: number): SequenceId;
  /** One edit: splices in old coordinates, ordered, disjoint. Bookkeeping only. */
  splice(id: SequenceId, splices: readonly CellSplice[]): void;
  /** Appends filled cells [start, end) of `from`; births stay, so they stand relocated. */
  adopt(id: SequenceId, from: SequenceId, start: number, end: number): void;
  step(entries: readonly StepEntry[]): Promise<StepResult>;
  sequence(id: SequenceId): SequenceInfo;
  stats(): RunnerStats;
  /** In an order that does not change. For a while's parts take those before it away. Throws ENGINE_BUSY in a step. */
  profile(): readonly ProfileEntry[];
  /** Throws BAD_ARGUMENT with a list of the broken invariants of design §10, if any. */
  check(): void;
  inspect(id: SequenceId, layer?: number): Cells;
  /**
   * Writes the filled leading cells as they are now to a KV file, on a worker thread; allowed during a step. Their
   * pages stay lent until it settles. Rejects with DISK_FULL, KV_FILE_UNWRITABLE.
   */
  save(id: SequenceId, file: string): Promise<void>;
  /** A new sequence out of a KV file; allowed during a step. Rejects with KV_FILE_REFUSED, CACHE_FULL. */
  load(file: string): Promise<SequenceId>;
  /** Throws ENGINE_BUSY during a step, a save or a load. */
  close(): Promise<void>;
}

interface NativeModule {
  open(options: OpenOptions): Promise<Runner>;
}

/** Where the build puts the addon, relative to the package root. */
const addonPath = "build/addon/Release/pocket.node";

/** Loads graph, weights and pool on a worker thread. Rejects with RUNTIME_MISSING, RUNTIME_FAILED, OUT_OF_MEMORY. */
export async function openRunner(options: OpenOptions, packageRoot: string): Promise<Runner> {
  const file = `${packageRoot}/${addonPath}`;
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

/** The runner with every failure turned into a PocketError, whether thrown or rejected. */
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
