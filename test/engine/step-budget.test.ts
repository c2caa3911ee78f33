// The step budget on made-up machines: milliseconds are a function of counts, no clock.
import { describe, expect, test } from "vitest";
import { StepBudget } from "../../src/engine/step-budget.ts";

/** Runs `steps` steps of one prompt and `decodes` streams on a machine that costs this much. */
function drive(
  pace: StepBudget,
  steps: number,
  decodes: number,
  cost: (prompt: number, step: number) => number,
) {
  let depth = 0;
  const gaps: { readonly promptTokens: number; readonly ms: number }[] = [];
  for (let step = 0; step < steps; step++) {
    const promptTokens = pace.budget(decodes, depth) - decodes;
    const ms = cost(promptTokens, step);
    pace.observe({ promptTokens, decodeTokens: decodes, depth, ms });
    depth += promptTokens;
    gaps.push({ promptTokens, ms });
  }
  return gaps;
}

describe("the pace of steps", () => {
  test("reads a prompt in full steps while nobody streams", () => {
    const pace = new StepBudget(512, 200);
    pace.observe({ promptTokens: 512, decodeTokens: 0, depth: 0, ms: 60_000 });
    expect(pace.budget(0, 30_000)).toBe(512);
  });

  test("finds the budget that fits the gap within three steps and then holds it", () => {
    const pace = new StepBudget(512, 200);
    for (let i = 0; i < 5; i++) pace.observe({ promptTokens: 0, decodeTokens: 1, depth: 0, ms: 45 });
    const gaps = drive(pace, 50, 1, (prompt) => 45 + 2.8 * prompt);
    expect(gaps[0]!.ms).toBeLessThan(200);
    for (const { ms } of gaps.slice(3)) expect(ms).toBeGreaterThan(150);
    for (const { ms } of gaps) expect(ms).toBeLessThanOrEqual(202);
  });

  test("follows a prompt that gets dearer with its depth", () => {
    const pace = new StepBudget(512, 200);
    for (let i = 0; i < 5; i++) pace.observe({ promptTokens: 0, decodeTokens: 1, depth: 0, ms: 45 });
    let depth = 0;
    const gaps = drive(pace, 400, 1, (prompt) => {
      depth += prompt;
      return 45 + prompt * (2.8 + depth / 4000);
    });
    for (const { ms } of gaps) expect(ms).toBeLessThan(225);
    expect(gaps.at(-1)!.promptTokens).toBeLessThan(gaps[5]!.promptTokens);
  });

  test("begins anew with a prompt that is far deeper than all that was read, and knows its cost one step later", () => {
    const cost = (prompt: number, depth: number) => 10 + prompt * (1.4 + depth / 3500);
    const pace = new StepBudget(512, 200);
    pace.observe({ promptTokens: 16, decodeTokens: 0, depth: 0, ms: cost(16, 0) });
    pace.observe({ promptTokens: 0, decodeTokens: 1, depth: 0, ms: 10 });
    const near = pace.budget(1, 400) - 1;
    expect(near).toBeGreaterThan(64);
    let depth = 14_336;
    const steps: number[] = [];
    for (let step = 0; step < 20; step++) {
      const promptTokens = pace.budget(1, depth) - 1;
      const ms = cost(promptTokens, depth);
      steps.push(ms);
      pace.observe({ promptTokens, decodeTokens: 1, depth, ms });
      depth += promptTokens;
    }
    for (const ms of steps) expect(ms).toBeLessThan(225);
    expect(steps.at(-1)).toBeGreaterThan(150);
    // What was learnt there holds for what is shallower.
    expect(pace.budget(1, 400)).toBeLessThan(near);
  });

  test("lets prompts progress on a machine that no budget fits", () => {
    const pace = new StepBudget(512, 50);
    const gaps = drive(pace, 20, 4, (prompt) => 300 + 20 * prompt);
    for (const { promptTokens } of gaps.slice(1)) expect(promptTokens).toBe(16);
  });

  test("recovers after one slow step", () => {
    const pace = new StepBudget(512, 200);
    const gaps = drive(pace, 40, 1, (prompt, step) => (step === 10 ? 5000 : 20 + 2 * prompt));
    expect(gaps[11]!.promptTokens).toBeLessThan(32);
    expect(gaps.at(-1)!.promptTokens).toBeGreaterThan(60);
  });

  test("takes no more than step_tokens, however fast the machine", () => {
    const pace = new StepBudget(128, 200);
    drive(pace, 5, 2, () => 1);
    expect(pace.budget(2, 0)).toBe(128);
  });
});
