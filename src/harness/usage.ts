// What a run has used so far: calls and tokens of the agent and of the compressor, and the agent's largest
// prompt. Sums of what answers report; nothing is estimated.
import type { AnswerFinished } from "../context/collect-answer.ts";

export type Caller = "agent" | "compressor";

export interface CallUsage {
  readonly calls: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Prompt tokens by origin: kept + relocated + computed = promptTokens. */
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  /** Milliseconds, summed over the calls. */
  readonly ms: number;
}

export interface Usage {
  readonly agent: CallUsage;
  readonly compressor: CallUsage;
  /** Prompt tokens of the agent's largest call. */
  readonly peakInput: number;
}

const noCalls: CallUsage = {
  calls: 0,
  promptTokens: 0,
  completionTokens: 0,
  kept: 0,
  relocated: 0,
  computed: 0,
  ms: 0,
};

export const emptyUsage: Usage = { agent: noCalls, compressor: noCalls, peakInput: 0 };

/** The usage with one more call. */
export function addCall(usage: Usage, caller: Caller, finish: AnswerFinished): Usage {
  const { promptTokens, completionTokens, cacheUsage, promptMs, generateMs } = finish;
  const before = usage[caller];
  const after: CallUsage = {
    calls: before.calls + 1,
    promptTokens: before.promptTokens + promptTokens,
    completionTokens: before.completionTokens + completionTokens,
    kept: before.kept + cacheUsage.kept,
    relocated: before.relocated + cacheUsage.relocated,
    computed: before.computed + cacheUsage.computed,
    ms: before.ms + promptMs + generateMs,
  };
  const peakInput = caller === "agent" ? Math.max(usage.peakInput, promptTokens) : usage.peakInput;
  return { ...usage, [caller]: after, peakInput };
}
