// Random edits of one live sequence against a plain array, and what must hold afterwards.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Runner } from "../../src/engine/addon.ts";
import { distance, edit, greedy, nextLogprobs, openTiny, prefill } from "../support/tiny-runner.ts";

let runner: Runner;
beforeAll(async () => {
  runner = await openTiny("random", { pages: 64 });
});
afterAll(() => runner?.close());

/** Shares of the length, and tokens to put in; converted to old coordinates when the length is known. */
const anEdit = fc.record({
  cuts: fc.array(
    fc.tuple(fc.double({ min: 0, max: 1, noNaN: true }), fc.double({ min: 0, max: 1, noNaN: true })),
    {
      minLength: 1,
      maxLength: 3,
    },
  ),
  insert: fc.array(fc.integer({ min: 0, max: 249 }), { maxLength: 25 }),
});

function splicesOf(cuts: readonly (readonly [number, number])[], insert: readonly number[], length: number) {
  const points = cuts
    .flat()
    .map((share) => Math.floor(share * length))
    .sort((a, b) => a - b);
  return cuts.map((_, rank) => ({
    start: points[2 * rank]!,
    end: points[2 * rank + 1]!,
    tokens: Int32Array.from(insert.slice(rank * 8, rank * 8 + 8 + 10 * rank)),
  }));
}

describe("random splices", () => {
  test("(1)(2)(3)(4)(8) leave the tokens of a plain array, sound pages and births that never change", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anEdit, { minLength: 1, maxLength: 12 }), async (edits) => {
        let plain = Array.from({ length: 120 }, (_, index) => index);
        const id = await prefill(runner, Int32Array.from(plain));
        for (const { cuts, insert } of edits) {
          const splices = splicesOf(cuts, insert, plain.length);
          await edit(runner, id, splices, 16);
          for (const { start, end, tokens } of [...splices].reverse())
            plain.splice(start, end - start, ...tokens);
          runner.check();
          const cells = runner.inspect(id);
          expect(Array.from(cells.tokens)).toEqual(plain);
          expect(cells.filled.every(Boolean)).toBe(true);
        }
        runner.release(id);
        expect(runner.stats()).toMatchObject({ pagesUsed: 0, pagesFree: 64, cells: 0 });
        plain = [];
      }),
      { numRuns: 40 },
    );
  });

  test("a hundred of them leave no page behind, memory flat, and layer 0 as in a cold prefill", async () => {
    const random = mulberry(11);
    let plain = Array.from({ length: 300 }, () => Math.floor(random() * 250));
    const id = await prefill(runner, Int32Array.from(plain));
    const resident: number[] = [];
    for (let round = 0; round < 100; round++) {
      const start = Math.floor(random() * plain.length);
      const end = Math.min(plain.length, start + Math.floor(random() * 40));
      const grow = plain.length < 300 ? 45 : 25;
      const tokens = Int32Array.from({ length: Math.floor(random() * grow) }, () =>
        Math.floor(random() * 250),
      );
      await edit(runner, id, [{ start, end, tokens }]);
      plain = [...plain.slice(0, start), ...tokens, ...plain.slice(end)];
      runner.check();
      resident.push(process.memoryUsage.rss());
    }
    const { pagesFree, pagesUsed, pages } = runner.stats();
    expect(pagesFree + pagesUsed).toBe(pages);
    expect(Array.from(runner.inspect(id).tokens)).toEqual(plain);
    // Values carry no position and layer 0 attends to nothing, so they equal a cold prefill's to the last bits
    // that the number of rows in a step may turn.
    const cold = await prefill(runner, Int32Array.from(plain));
    const [is, was] = [runner.inspect(id, 0).values!, runner.inspect(cold, 0).values!];
    expect(Math.max(...is.map((value, place) => Math.abs(value - was[place]!)))).toBeLessThan(1e-5);
    for (const one of [id, cold]) runner.release(one);
    expect(runner.stats().pagesUsed).toBe(0);
    const growth = Math.max(...resident.slice(50)) - Math.max(...resident.slice(0, 50));
    expect(growth).toBeLessThan(32 * 2 ** 20);
  });

  test("(6) a sequence with an open gap is not sampled, and (7) a refused splice has changed nothing", async () => {
    const id = await prefill(
      runner,
      Int32Array.from({ length: 50 }, (_, index) => index),
    );
    const before = { cells: runner.inspect(id, 1), stats: runner.stats() };
    const refuse = (splices: { start: number; end: number; count: number }[], code: string) =>
      expect(() => runner.splice(id, splices)).toThrow(expect.objectContaining({ code }));
    refuse([{ start: 0, end: 51, count: 0 }], "BAD_ARGUMENT");
    refuse([{ start: 5, end: 4, count: 0 }], "BAD_ARGUMENT");
    refuse([{ start: -1, end: 4, count: 0 }], "BAD_ARGUMENT");
    refuse(
      [
        { start: 3, end: 9, count: 1 },
        { start: 8, end: 9, count: 1 },
      ],
      "BAD_ARGUMENT",
    );
    refuse([{ start: 50, end: 50, count: 1100 }], "CACHE_FULL");
    refuse([{ start: 50, end: 50, count: 5000 }], "CONTEXT_LENGTH_EXCEEDED");
    expect({ cells: runner.inspect(id, 1), stats: runner.stats() }).toEqual(before);
    runner.splice(id, [
      { start: 10, end: 12, count: 3 },
      { start: 50, end: 50, count: 2 },
    ]);
    expect(() => runner.step([{ sequence: id, tokens: Int32Array.of(1, 2, 3, 4), sample: greedy }])).toThrow(
      expect.objectContaining({ code: "BAD_ARGUMENT" }),
    );
    await runner.step([{ sequence: id, tokens: Int32Array.of(1, 2, 3, 4, 5), sample: greedy }]);
    expect(runner.sequence(id).gapTokens).toBe(0);
    runner.release(id);
    runner.release(id);
  });

  test("a step refuses cell changes until it ends, and tokens outside the vocabulary before it starts", async () => {
    const id = runner.newSequence();
    runner.splice(id, [{ start: 0, end: 0, count: 8 }]);
    expect(() => runner.step([{ sequence: id, tokens: Int32Array.of(1, 99_999) }])).toThrow(
      expect.objectContaining({ code: "BAD_ARGUMENT" }),
    );
    const step = runner.step([{ sequence: id, tokens: Int32Array.from([1, 2, 3, 4, 5, 6, 7, 8]) }]);
    expect(() => runner.splice(id, [])).toThrow(expect.objectContaining({ code: "ENGINE_BUSY" }));
    expect(() => runner.release(id)).toThrow(expect.objectContaining({ code: "ENGINE_BUSY" }));
    await step;
    runner.release(id);
  });

  test("two sequences in one step give the results of each alone", async () => {
    const [a, b] = [
      Int32Array.from({ length: 40 }, (_, i) => i),
      Int32Array.from({ length: 70 }, (_, i) => 200 - i),
    ];
    const alone = [await prefill(runner, a), await prefill(runner, b)];
    const together = [runner.newSequence(), runner.newSequence()];
    for (const [place, tokens] of [a, b].entries())
      runner.splice(together[place]!, [{ start: 0, end: 0, count: tokens.length }]);
    await runner.step([
      { sequence: together[0]!, tokens: a },
      { sequence: together[1]!, tokens: b },
    ]);
    for (const place of [0, 1]) {
      expect(
        distance(await nextLogprobs(runner, alone[place]!), await nextLogprobs(runner, together[place]!)),
      ).toBeLessThan(1e-5);
    }
    for (const id of [...alone, ...together]) runner.release(id);
  });
});

function mulberry(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
