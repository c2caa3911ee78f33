// Distributions over the whole vocabulary, which benches ask the runner for: they are those that targets and
// alternatives are taken from.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Runner } from "../../src/engine/addon.ts";
import { openTiny, prefill, tokensOf } from "../support/tiny-runner.ts";

let runner: Runner;
beforeAll(async () => {
  runner = await openTiny("distributions");
});
afterAll(() => runner?.close());

async function ask(targets: Int32Array, distributions: boolean) {
  const id = await prefill(runner, tokensOf(40));
  runner.splice(id, [{ start: 40, end: 40, count: targets.length }]);
  const tokens = tokensOf(targets.length, 3);
  const { outcomes } = await runner.step([{ sequence: id, tokens, targets, targetTop: 100, distributions }]);
  runner.release(id);
  return outcomes[0]!;
}

test("every target has one: it sums to 1 and contains the logprobs of the target and of the hundred most probable tokens", async () => {
  const { vocab } = runner.describe();
  const outcome = await ask(Int32Array.of(7, -1, 0, vocab - 1), true);
  const whole = outcome.distributions!;
  expect(whole).toBeInstanceOf(Float32Array);
  expect(whole.length).toBe(3 * vocab);
  for (const [row, target] of [7, 0, vocab - 1].entries()) {
    const own = whole.subarray(row * vocab, (row + 1) * vocab);
    expect(own.reduce((sum, logprob) => sum + Math.exp(logprob), 0)).toBeCloseTo(1, 5);
    expect(own[target]).toBe(outcome.targetLogprobs[row === 0 ? 0 : row + 1]);
    const falling = own.toSorted().toReversed();
    const likeliest = outcome.targetTopTokens.subarray(100 * row, 100 * (row + 1));
    for (const [rank, id] of likeliest.entries()) {
      expect(own[id]).toBeCloseTo(falling[rank]!, 5);
      expect(own[id]).toBeCloseTo(outcome.targetTopLogprobs[100 * row + rank]!, 5);
    }
  }
});

test("are absent unless requested", async () => {
  expect((await ask(Int32Array.of(7, 1), false)).distributions).toBeUndefined();
  expect((await ask(Int32Array.of(-1, -1), true)).distributions).toBeUndefined();
});
