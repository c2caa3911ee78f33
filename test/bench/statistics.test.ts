// The statistics of the fidelity benchmark against naive versions over whole vocabularies, and against values that
// can be worked out by hand.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { pooled, scoreTurn } from "../../bench/fidelity/score.ts";
import {
  agreement,
  divergence,
  firstDivergence,
  mean,
  needleScore,
  percentile,
  perplexity,
  type Seen,
  unseen,
} from "../../bench/fidelity/statistics.ts";
import { compare } from "../../bench/fidelity/there.ts";

/** What the floor would show of a distribution. */
function seenOf(probabilities: readonly number[], shown = probabilities.length, next = 0): Seen {
  const ids = probabilities
    .map((_, id) => id)
    .toSorted((a, b) => probabilities[b]! - probabilities[a]!)
    .slice(0, shown);
  return {
    ids: Int32Array.from(ids),
    logprobs: ids.map((id) => Math.log(probabilities[id]!)),
    nextLogprob: Math.log(probabilities[next]!),
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
const shifts = fc.array(fc.double({ min: -0.5, max: 0.5, noNaN: true }), {
  minLength: vocabulary,
  maxLength: vocabulary,
});

describe("divergence", () => {
  test("of one half and one half from a quarter and three quarters is half the logarithm of four thirds", () => {
    const [p, q] = [seenOf([0.5, 0.5]), seenOf([0.25, 0.75])];
    expect(divergence(p, q)).toBeCloseTo(0.5 * Math.log(2) + 0.5 * Math.log(2 / 3), 6);
  });

  test("of anything from itself is zero", () => {
    fc.assert(
      fc.property(logits, (some) => {
        const seen = seenOf(softmax(some), 100);
        expect(divergence(seen, seen)).toBe(0);
      }),
      { numRuns: 50 },
    );
  });

  test("where everything is shown is the naive sum", () => {
    fc.assert(
      fc.property(logits, logits, (a, b) => {
        const [p, q] = [softmax(a), softmax(b)];
        expect(divergence(seenOf(p), seenOf(q))).toBeCloseTo(naiveDivergence(p, q), 4);
      }),
      { numRuns: 50 },
    );
  });

  test("where a hundred of 300 are shown is never above the naive sum", () => {
    fc.assert(
      fc.property(logits, logits, (a, b) => {
        const [p, q] = [softmax(a), softmax(b)];
        const low = divergence(seenOf(p, 100), seenOf(q, 100));
        expect(low).toBeLessThanOrEqual(naiveDivergence(p, q) + 1e-5);
        expect(low).toBeGreaterThan(-1e-6);
      }),
      { numRuns: 100 },
    );
  });

  test("misses only the divergence inside what neither shows", () => {
    fc.assert(
      fc.property(logits, shifts, (a, shift) => {
        const p = softmax(a);
        const q = softmax(a.map((logit, id) => logit + shift[id]!));
        const [pSeen, qSeen] = [seenOf(p, 100), seenOf(q, 100)];
        const missing = naiveDivergence(p, q) - divergence(pSeen, qSeen);
        // Logits within half of one another: inside the hidden mass the divergence is at most one nat.
        const hidden = p.reduce(
          (sum, share, id) => sum + (pSeen.ids.includes(id) && qSeen.ids.includes(id) ? 0 : share),
          0,
        );
        expect(missing).toBeLessThanOrEqual(hidden + 1e-6);
      }),
      { numRuns: 50 },
    );
  });

  test("is large where the oracle's tokens are not among those shown", () => {
    const p = seenOf(
      [0.9, 0.05, 0.05, 1e-9, 1e-9, 1e-9].map((share) => share / 1.000000003),
      2,
    );
    const q = seenOf(
      [1e-6, 1e-6, 1e-6, 0.5, 0.3, 0.2].map((share) => share / 1.000003),
      2,
    );
    // The two it shows hold 0.8; the least of them bounds what 0.9 may have.
    expect(divergence(p, q)).toBeGreaterThan(1);
    expect(divergence(p, q)).toBeLessThan(naiveDivergence([0.9, 0.05, 0.05], [1e-6, 1e-6, 1e-6]));
  });
});

test("a percentile is the naive one by sorting and counting, and lies between its neighbours in proportion", () => {
  expect(percentile([4, 1, 3, 2], 0.5)).toBe(2.5);
  expect(percentile([7], 0.99)).toBe(7);
  expect(percentile([], 0.5)).toBeNaN();
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: 1, maxLength: 200 }), (values) => {
      const cut = percentile(values, 0.99);
      const below = values.filter((value) => value <= cut).length;
      expect(below).toBeGreaterThanOrEqual(Math.floor(0.99 * (values.length - 1)) + 1);
      expect(percentile(values, 0)).toBe(Math.min(...values));
      expect(percentile(values, 1)).toBe(Math.max(...values));
    }),
  );
});

test("perplexity of tokens at one half and one eighth is four", () => {
  const row = (share: number) => seenOf([share, 1 - share]);
  expect(perplexity([row(0.5), row(1 / 8)])).toBeCloseTo(4, 10);
});

describe("the first divergence", () => {
  const saying = (tokens: readonly number[]) =>
    tokens.map((token) => seenOf([0, 1, 2, 3].map((id) => (id === token ? 0.7 : 0.1))));

  test("is the number of tokens that a greedy run has in common with the oracle's", () => {
    expect(firstDivergence([1, 2, 3], saying([1, 2, 3]))).toBe(3);
    expect(firstDivergence([1, 2, 3], saying([1, 0, 3]))).toBe(1);
    expect(firstDivergence([1, 2, 3], saying([0, 2, 3]))).toBe(0);
  });

  test("is that of two greedy runs of random machines, and agreement counts the places", () => {
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
        const [spoken, apart] = [run(one), run(other)];
        const naive = spoken.findIndex((token, place) => token !== apart[place]);
        const along = spoken.map((_, place) => next(other, spoken.slice(0, place)));
        expect(firstDivergence(spoken, saying(along))).toBe(naive < 0 ? spoken.length : naive);
        const equal = along.filter((token, place) => token === spoken[place]).length;
        expect(agreement(saying(spoken), saying(along))).toBeCloseTo(equal / 12, 12);
      }),
    );
  });
});

test("a needle is recalled when every token of it is likeliest, and its margin is in nats", () => {
  const digit = (right: number, share: number) => ({
    ids: Int32Array.of(right, 5),
    logprobs: [Math.log(share), Math.log(1 - share)],
    nextLogprob: Math.log(share),
  });
  const wrong = [[digit(5, 0.1)], [digit(5, 0.4)]];
  const known = needleScore({ right: [digit(3, 0.9)], rightIds: [3], wrong });
  expect(known.recalled).toBe(true);
  expect(known.margin).toBeCloseTo(Math.log(0.9) - (Math.log(0.1) + Math.log(0.4)) / 2, 12);
  expect(needleScore({ right: [digit(4, 0.9)], rightIds: [3], wrong }).recalled).toBe(false);
});

test("what is not shown is one minus what is", () => {
  expect(unseen(seenOf([0.6, 0.3, 0.1], 2))).toBeCloseTo(0.1, 12);
  expect(mean([1, 2, 6])).toBe(3);
});

test("a pooled row counts tokens of all conversations alike, and tells the spread of their means", () => {
  const text = Int32Array.of(0, 1);
  const certain = [seenOf([0.95, 0.05], 2, 0), seenOf([0.05, 0.95], 2, 1)];
  const unsure = [seenOf([0.5, 0.5], 2, 0), seenOf([0.4, 0.6], 2, 1)];
  const oracle = [scoreTurn(certain, certain, text), scoreTurn(unsure, unsure, text)];
  const arm = [scoreTurn(certain, unsure, text), scoreTurn(unsure, unsure, text)];
  const row = pooled(arm, oracle);
  const first = (divergence(certain[0]!, unsure[0]!) + divergence(certain[1]!, unsure[1]!)) / 2;
  expect(Number(row.KL)).toBeCloseTo(first / 2, 3);
  expect(row["conv means"]).toBe(`0 – ${first.toPrecision(3)}`);
  expect(row["KL open"]).toBe("0 (2)");
  expect(row).toMatchObject({ convs: 2, tokens: 4, "top-1": "100.0 %", "first difference": "- (2), - (2)" });
});

test("two measurements are compared over the arms that both have: ratios, shares of suffix, pairs in one order", () => {
  const here = { suffix: 0.04, a: 0.01, b: 0.03, only: 1 };
  const there = { b: 0.005, a: 0.01, suffix: 0.02, missing: 3 };
  const { rows, pairs, pairsAlike } = compare(here, there);
  expect(rows.map(({ arm }) => arm)).toEqual(["b", "a", "suffix"]);
  expect(rows[0]).toMatchObject({ ratio: 6, ofSuffixHere: 0.75, ofSuffixThere: 0.25 });
  expect([pairsAlike, pairs]).toEqual([2, 3]);
});
