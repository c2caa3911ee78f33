// The engine on the tiny model with a pool that is too small for its answers: the tokens equal those of a large pool.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Engine } from "../../src/engine/engine.ts";
import type { SequencePort } from "../../src/engine/job.ts";
import { append, collect, job } from "../engine/rig.ts";
import { faultyRunner } from "../support/faulty-runner.ts";
import { openTiny, tokensOf } from "../support/tiny-runner.ts";

const answersOf = (engine: Engine, count: number, length: number) =>
  Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const sequence = engine.create();
      const prompt = Array.from(tokensOf(20 + 5 * index, index));
      const tokens = await collect(sequence.run(job([append(sequence, prompt)], length)));
      sequence.release();
      return tokens;
    }),
  );

let large: Engine;
beforeAll(async () => {
  large = new Engine(await openTiny("pressure"), { stepTokens: 64 });
});
afterAll(() => large?.close());

describe("on the tiny model", () => {
  test("five answers in a pool for two equal those in a large pool, and leave no page allocated", async () => {
    const expected = await answersOf(large, 5, 60);
    const runner = await openTiny("pressure", { pages: 12 });
    const tight = new Engine(runner, { stepTokens: 64 });
    expect(await answersOf(tight, 5, 60)).toEqual(expected);
    // The prompts have 150 tokens; more means that a request was recomputed.
    expect(tight.stats().promptTokens).toBeGreaterThan(150);
    expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
    runner.check();
    await tight.close();
  });

  test("a stream has the same tokens alone and in a batch", async () => {
    const together = await answersOf(large, 6, 24);
    for (const [index, expected] of together.entries()) {
      const sequence = large.create();
      const prompt = Array.from(tokensOf(20 + 5 * index, index));
      expect(await collect(sequence.run(job([append(sequence, prompt)], 24)))).toEqual(expected);
      sequence.release();
    }
  });

  test("failed steps and refused pages leave other answers right and the invariants intact", async () => {
    const expected = await answersOf(large, 4, 30);
    const runner = await openTiny("pressure", { pages: 24 });
    const faulty = faultyRunner(runner, { seed: 3, step: 0.03, splice: 0.1 });
    const engine = new Engine(faulty, { stepTokens: 32, allocationTimeoutMs: 5 });
    let answered = 0;
    for (let round = 0; round < 6; round++) {
      const ends = await Promise.all(
        expected.map(async (tokens, index) => {
          const sequence = engine.create();
          const prompt = Array.from(tokensOf(20 + 5 * index, index));
          try {
            expect(await collect(sequence.run(job([append(sequence, prompt)], 30)))).toEqual(tokens);
            return 1;
          } catch (cause) {
            expect(cause).toMatchObject({ code: expect.stringMatching(/CACHE_|RUNTIME_FAILED/) as string });
            return 0;
          } finally {
            sequence.release();
          }
        }),
      );
      answered += ends.reduce((sum: number, one) => sum + one, 0);
      runner.check();
      expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
    }
    expect(faulty.counts.steps + faulty.counts.splices).toBeGreaterThan(0);
    expect(answered).toBeGreaterThan(0);
    await engine.close();
  });

  test("background repair leaves a sequence that equals a cold prefill", async () => {
    const tokens = tokensOf(200);
    const sequence = large.create();
    await collect(sequence.run(job([append(sequence, Array.from(tokens))], 0)));
    const summary = tokensOf(12, 9);
    await collect(sequence.run(job([{ start: 20, end: 60, tokens: summary }], 0)));
    expect(sequence.exactLength).toBe(32);
    for (let start = 32; start < 172; start += 70) {
      const range = sequence.tokens().subarray(start, start + 70);
      await collect(sequence.run(job([{ start, end: start + 70, tokens: range }], 0, { background: true })));
      expect(sequence.exactLength).toBe(Math.min(start + 70, 172));
    }
    const cold = large.create();
    await collect(cold.run(job([append(cold, Array.from(sequence.tokens()))], 0)));
    const next = (one: SequencePort) => collect(one.run(job([append(one, [5])], 20)));
    expect(await next(sequence)).toEqual(await next(cold));
    for (const one of [sequence, cold]) one.release();
  });
});
