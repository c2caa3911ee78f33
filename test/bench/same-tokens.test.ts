// Two engines on the same tokens: the pure side, on numbers that can be added up by hand; and recipes as the peer is
// given them.
import { expect, test } from "vitest";
import { arms, computedBy, type Edit } from "../../bench/fidelity/arms.ts";
import {
  expectAlike,
  expectExact,
  peerRecipe,
  shiftAndShiftBack,
} from "../../bench/fidelity/compare-transformers.ts";
import type { Measured } from "../../bench/fidelity/measure.ts";
import { correlation, oracles, sameTokens, sameTokensRows } from "../../bench/fidelity/same-tokens.ts";
import type { Splice } from "../../src/engine/job.ts";
import { type Span, tokensOf } from "../../src/text/span.ts";
import { seeded } from "../support/random.ts";

const line = (scene: string, arm: string, divergences: number[], agreed = divergences.map(() => true)) =>
  ({
    scene,
    arm,
    turns: { step: { divergences, agreed, open: divergences.map((_, place) => place > 0) } },
  }) as unknown as Measured;

test("of every arm those conversations are compared that both engines have", () => {
  const here = [
    line("a", "none", [0, 0]),
    line("a", "suffix", [0.5, 2], [true, true]),
    line("b", "suffix", [2, 4], [true, false]),
    line("b", "dropped", [1, 1]),
    line("c", "suffix", [9, 9]),
  ];
  const reference = [
    line("a", "none", [1, 1]),
    line("b", "suffix", [1, 2], [true, false]),
    line("a", "suffix", [1, 2], [false, true]),
    line("d", "dropped", [1, 1]),
  ];
  const rows = sameTokens(here, reference, "step");
  expect(rows).toHaveLength(1);
  const [row] = rows;
  expect(row).toMatchObject({
    arm: "suffix",
    convs: 2,
    here: 2.125,
    reference: 1.5,
    openHere: 3,
    openReference: 2,
  });
  expect(row!.ratios).toEqual([2.5 / 3, 2]);
  expect(row!.alike).toBe(0.75);
  expect(sameTokensRows(rows)[0]).toMatchObject({ ratio: "1.4167", "open: ratio": "1.5000" });
  const [nothing] = sameTokensRows(
    sameTokens([line("a", "forget", [1e-4, 2e-4])], [line("a", "forget", [1e-13, -1e-13])], "step"),
  );
  expect(nothing).toMatchObject({ ratio: "-", "conv ratios": "-", "correlation of tokens": "-" });
});

test("the correlation is 1 for what is proportional, -1 for its opposite, and no number where nothing varies", () => {
  expect(correlation([1, 2, 5], [10, 20, 50])).toBeCloseTo(1);
  expect(correlation([1, 2, 5], [-1, -2, -5])).toBeCloseTo(-1);
  expect(correlation([1, 2, 5], [3, 3, 3])).toBeNaN();
});

test("what the oracles differ by is taken from the other engine's lines", () => {
  expect(oracles([])).toEqual([]);
  const [row] = oracles([line("a", "none", [0.001, 0.003], [true, false]), line("a", "suffix", [1, 1])]);
  expect(row).toMatchObject({ turn: "step", convs: 1, tokens: 2, "same likeliest": "50.0 %" });
  expect(Number(row!["KL(PyTorch ‖ here)"])).toBeCloseTo(0.002);
});

/** What a sequence holds after splices, done the slow way. */
function applied(tokens: readonly number[], splices: readonly Splice[]): readonly number[] {
  return splices
    .toReversed()
    .reduce<readonly number[]>(
      (held, one) => [...held.slice(0, one.start), ...one.tokens, ...held.slice(one.end)],
      tokens,
    );
}

function anEdit(seed: number): Edit {
  const random = seeded(seed);
  const span = (role: Span["role"], count: number, place: number) =>
    ({
      role,
      key: `${place}`,
      tokens: Int32Array.from({ length: count }, () => Math.floor(random() * 5000)),
    }) as Span;
  const spans = Array.from({ length: 12 }, (_, place) =>
    span(place % 2 === 0 ? "user" : "assistant", 10 + Math.floor(random() * 90), place),
  );
  const wanted = [...spans.slice(0, 2), span("user", 20 + Math.floor(random() * 30), 99), ...spans.slice(6)];
  return {
    resident: { spans, relocated: [], exactLength: tokensOf(spans).length },
    wanted,
    keptSpans: 2,
    memorySpans: 1,
    turn: [span("user", 7, 100)],
  };
}

test("every arm's edits lead from the resident cells to the tokens that its session would hold", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const edit = anEdit(seed);
    const resident = Array.from(tokensOf(edit.resident.spans));
    for (const { name, plan } of arms) {
      const recipe = plan(edit);
      const { keep, edits, chunk, turned } = peerRecipe(recipe);
      expect(edits.reduce(applied, resident.slice(0, keep)), name).toEqual(
        Array.from(tokensOf(recipe.spans)),
      );
      expect(turned).toBe(name !== "unturned");
      expect(chunk).toBe(name === "again" ? 384 : 512);
      expect(recipe.exactLength).toBeLessThanOrEqual(tokensOf(recipe.spans).length);
      if (name === "uncompacted") expect(computedBy(recipe)).toBe(0);
      if (["none", "again", "forget", "idle"].includes(name)) {
        expect(recipe.exactLength).toBe(tokensOf(edit.wanted).length);
      }
    }
  }
});

test("what is pushed back and pulled again holds the same tokens, and a peer that diverges is refused", () => {
  const edit = anEdit(3);
  const tokens = Array.from(tokensOf(edit.wanted));
  const { from, keep, edits } = shiftAndShiftBack(edit);
  expect([from, keep]).toEqual(["oracle", tokens.length]);
  expect(edits.reduce(applied, tokens)).toEqual(tokens);
  const seen = (...divergences: number[]) => ({ likeliest: [], logprobs: [], divergences });
  expect(() => expectExact([seen(1e-9, 1e-8), seen(-1e-10)])).not.toThrow();
  expect(() => expectExact([seen(0), seen(1e-3, 0)])).toThrow("splice is wrong");
  expect(() => expectAlike([seen(1e-4, 3e-4), seen(0)], 0.01)).not.toThrow();
  expect(() => expectAlike([seen(0), seen(0.05, 0)], 0.01)).toThrow("not the same model");
});
