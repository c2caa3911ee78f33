// Shared by the tests of the engine: an engine over a scripted runner, short constructors of jobs, and the expected
// answer of the scripted model.
import { Engine, type EngineOptions } from "../../src/engine/engine.ts";
import { type Generated, greedy, type Job, type SequencePort, type Splice } from "../../src/engine/job.ts";
import { following, ScriptedRunner } from "../support/scripted-runner.ts";

export function job(splices: Splice[], maxTokens: number, more: Partial<Job> = {}): Job {
  return { splices, sampling: greedy, maxTokens, stopTokens: new Set(), top: 0, ...more };
}

export const append = (sequence: SequencePort, tokens: number[]): Splice => ({
  start: sequence.length,
  end: sequence.length,
  tokens: Int32Array.from(tokens),
});

export const range = (start: number, end: number) =>
  Array.from({ length: end - start }, (_, index) => start + index);

export function continuation(prompt: number[], count: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) tokens.push(following(tokens));
  return tokens.slice(prompt.length);
}

export async function collect(answer: AsyncIterable<Generated>): Promise<number[]> {
  const tokens: number[] = [];
  for await (const { token } of answer) tokens.push(token);
  return tokens;
}
/** An engine over a scripted runner of `pages` pages of 16 tokens. */
export function rig(pages?: number, stepTokens = 32, more: Partial<EngineOptions> = {}) {
  const runner = new ScriptedRunner(pages);
  return { runner, engine: new Engine(runner, { stepTokens, ...more }) };
}
