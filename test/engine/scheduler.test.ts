import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { minPromptTokens, planStep } from "../../src/engine/scheduler.ts";

const demand = fc.oneof(
  fc.record({ pending: fc.constant(1), decoding: fc.constant(true) }),
  fc.record({ pending: fc.integer({ min: 1, max: 5000 }), decoding: fc.constant(false) }),
);

describe("the plan of a step", () => {
  test("gives every decode its token before any prompt gets one", () => {
    const shares = planStep(
      [
        { pending: 900, decoding: false },
        { pending: 1, decoding: true },
        { pending: 1, decoding: true },
      ],
      64,
    );
    expect(shares).toEqual([62, 1, 1]);
  });

  test("gives what a short prompt does not need to a long one", () => {
    const shares = planStep(
      [
        { pending: 16_000, decoding: false },
        { pending: 20, decoding: false },
      ],
      512,
    );
    expect(shares).toEqual([492, 20]);
  });

  test("lets prompts progress when decodes alone exceed the budget", () => {
    const decodes = Array.from({ length: 40 }, () => ({ pending: 1, decoding: true }));
    const shares = planStep([...decodes, { pending: 100, decoding: false }], 32);
    expect(shares.at(-1)).toBe(minPromptTokens);
  });

  test("never exceeds a demand or the budget, and wastes none of it", () => {
    fc.assert(
      fc.property(
        fc.array(demand, { minLength: 1, maxLength: 30 }),
        fc.integer({ min: 1, max: 1024 }),
        (demands, budget) => {
          const shares = planStep(demands, budget);
          const decodes = demands.filter((one) => one.decoding).length;
          const wanted = demands.reduce((sum, one) => sum + (one.decoding ? 0 : one.pending), 0);
          const prompts = shares.reduce(
            (sum, share, index) => sum + (demands[index]!.decoding ? 0 : share),
            0,
          );
          expect(shares.every((share, index) => share >= 0 && share <= demands[index]!.pending)).toBe(true);
          expect(prompts).toBe(Math.min(wanted, Math.max(budget - decodes, minPromptTokens)));
          expect(shares.some((share) => share > 0)).toBe(true);
        },
      ),
    );
  });
});
