// What a run has cost so far: calls and tokens by who asked, and the largest prompt of the agent. Adds up what
// answers report and estimates nothing.
import type { AnswerFinished } from "../context/collect-answer.ts";

export type Caller = "agent" | "compressor";

export interface CallUsage {
  readonly calls: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Of the prompts' tokens, by where they came from. */
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  /** Milliseconds of the calls. */
  readonly ms: number;
}

export interface Usage {
  readonly agent: CallUsage;
  readonly compressor: CallUsage;
  /** Prompt tokens of the agent's largest call. */
  readonly peakInput: number;
}

const nothing: CallUsage = {
  calls: 0,
  promptTokens: 0,
  completionTokens: 0,
  kept: 0,
  relocated: 0,
  computed: 0,
  ms: 0,
};

export const emptyUsage: Usage = { agent: nothing, compressor: nothing, peakInput: 0 };

/** The tally with one more call. */
export function addCall(tally: Usage, caller: Caller, finish: AnswerFinished): Usage {
  const { promptTokens, completionTokens, cacheUsage, promptMs, generateMs } = finish;
  const before = tally[caller];
  const cost: CallUsage = {
    calls: before.calls + 1,
    promptTokens: before.promptTokens + promptTokens,
    completionTokens: before.completionTokens + completionTokens,
    kept: before.kept + cacheUsage.kept,
    relocated: before.relocated + cacheUsage.relocated,
    computed: before.computed + cacheUsage.computed,
    ms: before.ms + promptMs + generateMs,
  };
  const peakInput = caller === "agent" ? Math.max(tally.peakInput, promptTokens) : tally.peakInput;
  return { ...tally, [caller]: cost, peakInput };
}
