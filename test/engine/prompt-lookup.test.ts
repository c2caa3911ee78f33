// Prompt lookup on the scripted runner: for any draft, the answer and the cells are those of decoding token by token.
// Which drafts are made, and when they stop.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Job } from "../../src/engine/job.ts";
import { NgramIndex } from "../../src/engine/ngram-index.ts";
import { maxDraftTokens, PromptLookup } from "../../src/engine/prompt-lookup.ts";
import { RowCosts } from "../../src/engine/row-costs.ts";
import { append, collect, job, range, rig } from "./rig.ts";

/** A model of eight tokens that repeats itself, with a deviation at every `stray`-th position. */
const circling = (stray: number) => (tokens: readonly number[]) => {
  const [a = 0, b = 0] = tokens.slice(-2);
  return (a * 5 + b * 3 + (tokens.length % stray === 0 ? 1 : 0)) % 8;
};

function plain(next: (tokens: readonly number[]) => number, prompt: readonly number[], job: Job): number[] {
  const tokens = [...prompt];
  while (tokens.length - prompt.length < job.maxTokens) {
    tokens.push(next(tokens));
    if (job.stopTokens.has(tokens.at(-1)!)) break;
  }
  return tokens.slice(prompt.length);
}

const cases = fc.record({
  stray: fc.integer({ min: 2, max: 40 }),
  prompts: fc.array(fc.array(fc.integer({ min: 0, max: 7 }), { minLength: 1, maxLength: 60 }), {
    minLength: 1,
    maxLength: 5,
  }),
  maxTokens: fc.integer({ min: 1, max: 80 }),
  stop: fc.integer({ min: 0, max: 20 }),
  pages: fc.integer({ min: 10, max: 64 }),
});

describe("an answer with lookup", () => {
  test("equals the answer without it, with the same cells, in any batch and in a pool that is too small", async () => {
    let accepted = 0;
    let rejected = 0;
    await fc.assert(
      fc.asyncProperty(cases, async ({ stray, prompts, maxTokens, stop, pages }) => {
        const { engine, runner } = rig(pages);
        runner.next = circling(stray);
        await Promise.all(
          prompts.map(async (prompt) => {
            const sequence = engine.create();
            const asked = job([append(sequence, prompt)], maxTokens, {
              lookup: true,
              stopTokens: new Set([stop]),
            });
            const tokens = await collect(sequence.run(asked));
            expect(tokens).toEqual(plain(runner.next, prompt, asked));
            expect(Array.from(sequence.tokens())).toEqual([...prompt, ...tokens.slice(0, -1)]);
            sequence.release();
          }),
        );
        expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
        const { acceptedTokens, draftTokens } = engine.stats();
        accepted += acceptedTokens;
        rejected += draftTokens - acceptedTokens;
      }),
      { numRuns: 60, seed: 7 },
    );
    expect(accepted).toBeGreaterThan(500);
    expect(rejected).toBeGreaterThan(50);
  });

  test("takes fewer steps where the text repeats, and marks the accepted draft tokens", async () => {
    const { engine, runner } = rig();
    runner.next = circling(1000);
    const sequence = engine.create();
    const items = [];
    for await (const item of sequence.run(job([append(sequence, [1, 2, 3])], 60, { lookup: true })))
      items.push(item);
    const { acceptedTokens, draftTokens } = engine.stats();
    expect(runner.log.length).toBe(60 - acceptedTokens);
    expect(runner.log.length).toBeLessThan(40);
    expect(items.filter(({ drafted }) => drafted)).toHaveLength(acceptedTokens);
    expect(items.reduce((sum, { rejected = 0 }) => sum + rejected, 0)).toBe(draftTokens - acceptedTokens);
  });

  test("leaves a sequence of prompt and generated tokens when it is cancelled", async () => {
    const { engine, runner } = rig();
    runner.next = circling(9);
    const sequence = engine.create();
    const prompt = [1, 2, 3, 4, 1, 2, 3];
    const tokens: number[] = [];
    for await (const { token } of sequence.run(job([append(sequence, prompt)], 200, { lookup: true }))) {
      tokens.push(token);
      if (tokens.length === 30) break;
    }
    const cells = Array.from(sequence.tokens());
    const whole = [...prompt, ...plain(runner.next, prompt, job([], 200))];
    expect(cells).toEqual(whole.slice(0, cells.length));
    expect(cells.length).toBeGreaterThanOrEqual(prompt.length + 29);
    expect(runner.sequence(1).gapTokens).toBe(0);
  });

  test("has no draft for constrained jobs and for jobs without lookup", async () => {
    const { engine, runner } = rig();
    runner.next = circling(1000);
    const constraint = { mask: () => undefined, accept: () => undefined, terminated: false };
    for (const more of [{ lookup: true, constraint }, {}]) {
      const sequence = engine.create();
      await collect(sequence.run(job([append(sequence, [1, 2, 3])], 60, more)));
    }
    expect(engine.stats().draftTokens).toBe(0);
  });
});

describe("n-grams", () => {
  test("find the longest match, the latest of equal ones, as a full search does", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 40 }), (text) => {
        const grams = new NgramIndex();
        for (const token of text) grams.push(token);
        const found = grams.find(3);
        const matches = range(1, text.length - 1).map((position) => {
          let match = 0;
          while (match < 8 && match <= position && text[position - match] === text[text.length - 1 - match])
            match++;
          return match;
        });
        const best = Math.max(0, ...matches);
        if (best < 2) {
          expect(found).toBeUndefined();
          return;
        }
        const from = matches.lastIndexOf(best) + 2;
        expect(found).toMatchObject({ match: best });
        const period = text.length - from;
        expect(Array.from(found!.tokens)).toEqual(range(0, 3).map((at) => text[from + (at % period)]));
      }),
      { seed: 3, numRuns: 300 },
    );
  });
});

describe("the draft", () => {
  const repeated = Int32Array.from({ length: 200 }, (_, index) => index % 20);

  test("grows with acceptance up to the row limit, and stops without acceptance", () => {
    const costs = new RowCosts();
    costs.observe(0, 20);
    const good = new PromptLookup(repeated);
    for (let turn = 0; turn < 30; turn++) {
      const { length } = good.draft(100, 1, costs);
      good.learn(length, length);
    }
    expect(good.draft(100, 1, costs)).toHaveLength(maxDraftTokens);
    expect(good.draft(3, 1, costs)).toHaveLength(3);
    const bad = new PromptLookup(repeated);
    let rows = 0;
    for (let turn = 0; turn < 1000; turn++) {
      const { length } = bad.draft(100, 1, costs);
      rows += length;
      bad.learn(length, 0);
    }
    expect(rows).toBeLessThan(60);
    expect(rows).toBeGreaterThan(10);
  });

  test("is shorter where rows are expensive, whatever other ranges cost", () => {
    const costs = new RowCosts();
    costs.observe(0, 20);
    for (let turn = 0; turn < 20; turn++) costs.observe(12, 20 * 13);
    expect(costs.ratio(12)).toBeCloseTo(13);
    expect(costs.ratio(0)).toBe(1);
    const lookup = new PromptLookup(repeated);
    expect(lookup.draft(100, 1, costs).length).toBeLessThanOrEqual(1);
  });
});
