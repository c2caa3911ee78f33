// The step budget on simulated machines: milliseconds are a function of counts, no clock.
import { describe, expect, test } from "vitest";
import { StepBudget } from "../../src/engine/step-budget.ts";

/** Runs `steps` steps of one prompt and `decodes` streams on a machine that costs this much. */
function drive(
  budget: StepBudget,
  steps: number,
  decodes: number,
  cost: (prompt: number, step: number) => number,
) {
  let depth = 0;
  const gaps: { readonly promptTokens: number; readonly ms: number }[] = [];
  for (let step = 0; step < steps; step++) {
    const promptTokens = budget.budget(decodes, depth) - decodes;
    const ms = cost(promptTokens, step);
    budget.observe({ promptTokens, decodeTokens: decodes, depth, ms });
    depth += promptTokens;
    gaps.push({ promptTokens, ms });
  }
  return gaps;
}

describe("the step budget", () => {
  test("reads a prompt in full steps while no answer streams", () => {
    const budget = new StepBudget(512, 200);
    budget.observe({ promptTokens: 512, decodeTokens: 0, depth: 0, ms: 60_000 });
    expect(budget.budget(0, 30_000)).toBe(512);
  });

  test("finds the budget that fits the gap within three steps and then holds it", () => {
    const budget = new StepBudget(512, 200);
    for (let i = 0; i < 5; i++) budget.observe({ promptTokens: 0, decodeTokens: 1, depth: 0, ms: 45 });
    const gaps = drive(budget, 50, 1, (prompt) => 45 + 2.8 * prompt);
    expect(gaps[0]!.ms).toBeLessThan(200);
    for (const { ms } of gaps.slice(3)) expect(ms).toBeGreaterThan(150);
    for (const { ms } of gaps) expect(ms).toBeLessThanOrEqual(202);
  });

  test("follows the cost of a prompt that grows with its depth", () => {
    const budget = new StepBudget(512, 200);
    for (let i = 0; i < 5; i++) budget.observe({ promptTokens: 0, decodeTokens: 1, depth: 0, ms: 45 });
    let depth = 0;
    const gaps = drive(budget, 400, 1, (prompt) => {
      depth += prompt;
      return 45 + prompt * (2.8 + depth / 4000);
    });
    for (const { ms } of gaps) expect(ms).toBeLessThan(225);
    expect(gaps.at(-1)!.promptTokens).toBeLessThan(gaps[5]!.promptTokens);
  });

  test("starts with few tokens for a prompt far deeper than those observed, and has its cost one step later", () => {
    const cost = (prompt: number, depth: number) => 10 + prompt * (1.4 + depth / 3500);
    const budget = new StepBudget(512, 200);
    budget.observe({ promptTokens: 16, decodeTokens: 0, depth: 0, ms: cost(16, 0) });
    budget.observe({ promptTokens: 0, decodeTokens: 1, depth: 0, ms: 10 });
    const near = budget.budget(1, 400) - 1;
    expect(near).toBeGreaterThan(64);
    let depth = 14_336;
    const steps: number[] = [];
    for (let step = 0; step < 20; step++) {
      const promptTokens = budget.budget(1, depth) - 1;
      const ms = cost(promptTokens, depth);
      steps.push(ms);
      budget.observe({ promptTokens, decodeTokens: 1, depth, ms });
      depth += promptTokens;
    }
    for (const ms of steps) expect(ms).toBeLessThan(225);
    expect(steps.at(-1)).toBeGreaterThan(150);
    // What was learnt there holds for what is shallower.
    expect(budget.budget(1, 400)).toBeLessThan(near);
  });

  test("reads the minimum of prompt tokens on a machine that is too slow for the gap", () => {
    const budget = new StepBudget(512, 50);
    const gaps = drive(budget, 20, 4, (prompt) => 300 + 20 * prompt);
    for (const { promptTokens } of gaps.slice(1)) expect(promptTokens).toBe(16);
  });

  test("recovers after one slow step", () => {
    const budget = new StepBudget(512, 200);
    const gaps = drive(budget, 40, 1, (prompt, step) => (step === 10 ? 5000 : 20 + 2 * prompt));
    expect(gaps[11]!.promptTokens).toBeLessThan(32);
    expect(gaps.at(-1)!.promptTokens).toBeGreaterThan(60);
  });

  test("takes no more than step_tokens, however fast the machine", () => {
    const budget = new StepBudget(128, 200);
    drive(budget, 5, 2, () => 1);
    expect(budget.budget(2, 0)).toBe(128);
  });
});
