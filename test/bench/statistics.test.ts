// The statistics of the fidelity benchmark against naive versions, and against values that can be worked out by hand.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { compare } from "../../bench/fidelity/reference-results.ts";
import { type Pool, pooled, type Row, scored, scoreTurn } from "../../bench/fidelity/score.ts";
import { divergence, firstDivergence, needleScore, type Seen } from "../../bench/fidelity/statistics.ts";

/** As the floor tells it. */
function rowOf(probabilities: readonly number[], next = 0): Row {
  return {
    likeliest: probabilities.indexOf(Math.max(...probabilities)),
    nextLogprob: Math.log(probabilities[next]!),
    logprobs: Float32Array.from(probabilities, Math.log),
  };
}

const naiveDivergence = (p: readonly number[], q: readonly number[]) =>
  p.reduce((sum, share, id) => sum + share * Math.log(share / q[id]!), 0);

/** Softmax of logits; `spread` 0 … about 8. */
function softmax(logits: readonly number[]): number[] {
  const exps = logits.map(Math.exp);
  const sum = exps.reduce((total, one) => total + one, 0);
  return exps.map((one) => one / sum);
}

const vocabulary = 300;
const logits = fc.array(fc.double({ min: -8, max: 8, noNaN: true }), {
  minLength: vocabulary,
  maxLength: vocabulary,
});

describe("divergence", () => {
  test("of one half and one half from a quarter and three quarters is half the logarithm of four thirds", () => {
    const [p, q] = [
      [0.5, 0.5],
      [0.25, 0.75],
    ];
    expect(divergence(p!.map(Math.log), q!.map(Math.log))).toBeCloseTo(0.5 * Math.log(4 / 3), 12);
  });

  test("of anything from itself is zero", () => {
    fc.assert(
      fc.property(logits, (some) => {
        const { logprobs } = rowOf(softmax(some));
        expect(divergence(logprobs, logprobs)).toBe(0);
      }),
      { numRuns: 50 },
    );
  });

  test("is the naive sum, and never negative, of what float32 left of both", () => {
    fc.assert(
      fc.property(logits, logits, fc.double({ min: 0, max: 1, noNaN: true }), (a, b, share) => {
        // Between equal and unrelated.
        const mixed = a.map((logit, id) => logit + share ** 4 * (b[id]! - logit));
        const [p, q] = [softmax(a), softmax(mixed)];
        const found = divergence(rowOf(p).logprobs, rowOf(q).logprobs);
        expect(Math.abs(found - naiveDivergence(p, q))).toBeLessThan(2e-6);
        expect(found).toBeGreaterThan(-1e-12);
      }),
      { numRuns: 100 },
    );
  });

  test("does not see a constant that was added to all logarithms", () => {
    const [p, q] = [softmax([1, 2, 3]).map(Math.log), softmax([3, 1, 2]).map(Math.log)];
    const moved = q.map((logprob) => logprob + 0.25);
    expect(divergence(p, moved)).toBeCloseTo(divergence(p, q), 12);
  });

  test("passes over what the oracle cannot say, and has no end where only the arm cannot say it", () => {
    const never = Number.NEGATIVE_INFINITY;
    expect(divergence([0, never], [Math.log(0.5), Math.log(0.5)])).toBeCloseTo(Math.log(2), 12);
    expect(divergence([0, never], [0, never])).toBe(0);
    expect(divergence([Math.log(0.5), Math.log(0.5)], [0, never])).toBe(Number.POSITIVE_INFINITY);
  });
});

describe("the first divergence", () => {
  const saying = (tokens: readonly number[]) =>
    tokens.map((likeliest): Seen => ({ likeliest, nextLogprob: Math.log(0.7) }));

  test("is the number of tokens that a greedy run has in common with the oracle's", () => {
    expect(firstDivergence([1, 2, 3], saying([1, 2, 3]))).toBe(3);
    expect(firstDivergence([1, 2, 3], saying([1, 0, 3]))).toBe(1);
    expect(firstDivergence([1, 2, 3], saying([0, 2, 3]))).toBe(0);
  });

  test("is that of two greedy runs of random machines", () => {
    const table = fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 64, maxLength: 64 });
    fc.assert(
      fc.property(table, table, (one, other) => {
        // A machine says what its table has for the last three tokens.
        const next = (machine: readonly number[], said: readonly number[]) =>
          machine[said.slice(-3).reduce((key, token) => key * 4 + token, 0)]!;
        const run = (machine: readonly number[]) => {
          const said: number[] = [];
          while (said.length < 12) said.push(next(machine, said));
          return said;
        };
        const [answers, apart] = [run(one), run(other)];
        const naive = answers.findIndex((token, place) => token !== apart[place]);
        const along = answers.map((_, place) => next(other, answers.slice(0, place)));
        expect(firstDivergence(answers, saying(along))).toBe(naive < 0 ? answers.length : naive);
      }),
    );
  });
});

test("a needle is recalled when every token of it is likeliest, and its margin is in nats", () => {
  const digit = (likeliest: number, share: number): Seen => ({ likeliest, nextLogprob: Math.log(share) });
  const wrong = [[digit(5, 0.1)], [digit(5, 0.4)]];
  const known = needleScore({ right: [digit(3, 0.9)], rightIds: [3], wrong });
  expect(known.recalled).toBe(true);
  expect(known.margin).toBeCloseTo(Math.log(0.9) - (Math.log(0.1) + Math.log(0.4)) / 2, 12);
  expect(needleScore({ right: [digit(4, 0.9)], rightIds: [3], wrong }).recalled).toBe(false);
});

test("a pooled row counts tokens of all conversations alike, and tells the spread of their means", () => {
  const text = Int32Array.of(0, 1);
  const certain = [rowOf([0.95, 0.05], 0), rowOf([0.05, 0.95], 1)];
  const unsure = [rowOf([0.5, 0.5], 0), rowOf([0.4, 0.6], 1)];
  const against = (oracle: readonly Row[], arm: readonly Row[]) =>
    scoreTurn(
      oracle,
      arm.map((row, place) => scored(oracle[place]!, row)),
      text,
    );
  const oracle = [against(certain, certain), against(unsure, unsure)];
  const arm = [against(certain, unsure), against(unsure, unsure)];
  const row = pooled(arm, oracle);
  const first = (naiveDivergence([0.95, 0.05], [0.5, 0.5]) + naiveDivergence([0.05, 0.95], [0.4, 0.6])) / 2;
  expect(Number(row.KL)).toBeCloseTo(first / 2, 3);
  expect(row["conv means"]).toBe(`0 – ${first.toPrecision(3)}`);
  expect(row["KL open"]).toBe("0 (2)");
  expect(row).toMatchObject({ convs: 2, tokens: 4, "top-1": "100.0 %", "first difference": "- (2), - (2)" });
});

test("two measurements are compared over the arms that both have: ratios, how many are near, pairs in one order", () => {
  const pool = (kl: number): Pool => ({ tokens: 10, kl, least: 0, most: 1, openKl: 2 * kl, openTokens: 5 });
  const own = (kl: number) => ({ kl, open: 4 * kl, least: 0, most: 1 });
  const here = { suffix: pool(0.04), a: pool(0.01), b: pool(0.03), only: pool(1) };
  const reference = { b: own(0.005), a: own(0.01), suffix: own(0.02), missing: own(3) };
  const { rows, pairs, pairsAlike, near } = compare(here, reference);
  expect(rows.map(({ arm }) => arm)).toEqual(["b", "a", "suffix"]);
  expect(rows[0]!.ratio).toBeCloseTo(6, 12);
  expect(rows[0]!.openRatio).toBeCloseTo(3, 12);
  expect([pairsAlike, pairs, near]).toEqual([2, 3, 2]);
});
