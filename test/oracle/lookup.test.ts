// Prompt lookup on the tiny model: several rows of real logits a step, and the answer, the cells and the pages are
// those of one row a step. f32 throughout, so that what remains of a difference is the order of a sum.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Runner, SampledToken } from "../../src/engine/addon.ts";
import { Engine } from "../../src/engine/engine.ts";
import { type Generated, greedy as greedyJob, type Job } from "../../src/engine/job.ts";
import { maxDraftTokens } from "../../src/engine/prompt-lookup.ts";
import { append, job } from "../engine/rig.ts";
import { mulberry } from "../support/faulty-runner.ts";
import { greedy, openTiny, openTinyPanels, prefill, tokensOf } from "../support/tiny-runner.ts";

let runner: Runner;
let engine: Engine;
beforeAll(async () => {
  runner = await openTiny("lookup", { pages: 64 });
  engine = new Engine(checked(runner), { stepTokens: 64 });
});
afterAll(() => engine?.close());

/** Looks at all invariants after every step. */
function checked(inner: Runner): Runner {
  return new Proxy(inner, {
    get(target, key) {
      const value = Reflect.get(target, key) as unknown;
      if (key !== "step") return typeof value === "function" ? value.bind(target) : value;
      return async (entries: Parameters<Runner["step"]>[0]) => {
        const result = await target.step(entries);
        target.check();
        return result;
      };
    },
  });
}

interface Outcome {
  readonly items: readonly Generated[];
  readonly tokens: readonly number[];
  readonly births: readonly number[];
  readonly exactLength: number;
  readonly pagesUsed: number;
}

async function answer(on: Engine, prompt: readonly number[], more: Partial<Job>): Promise<Outcome> {
  const sequence = on.create();
  const items: Generated[] = [];
  for await (const item of sequence.run(job([append(sequence, [...prompt])], 50, more))) items.push(item);
  const outcome = {
    items,
    tokens: Array.from(sequence.tokens()),
    births: Array.from(sequence.cells()!.births),
    exactLength: sequence.exactLength,
    pagesUsed: on.stats().pagesUsed,
  };
  sequence.release();
  return outcome;
}

/** Few words in an order of their own: a text that repeats itself here and there. */
function prompts(count: number, seed: number): number[][] {
  const random = mulberry(seed);
  return Array.from({ length: count }, () => {
    const words = Array.from({ length: 4 }, () =>
      Array.from({ length: 5 }, () => Math.floor(random() * 250)),
    );
    return Array.from(
      { length: 4 + Math.floor(random() * 8) },
      () => words[Math.floor(random() * 4)]!,
    ).flat();
  });
}

const kinds: readonly (readonly [name: string, more: Partial<Job>])[] = [
  ["greedy", {}],
  ["seeded", { sampling: { ...greedyJob, temperature: 0.4, topK: 8, seed: 5 } }],
  ["nucleus", { sampling: { ...greedyJob, temperature: 0.6, topP: 0.5, minP: 0.05, seed: 6 } }],
  [
    "penalties",
    { sampling: { ...greedyJob, repetitionPenalty: 1.05, presencePenalty: 0.05, frequencyPenalty: 0.02 } },
  ],
  [
    "seeded penalties",
    { sampling: { ...greedyJob, temperature: 0.3, topK: 3, repetitionPenalty: 1.02, seed: 9 } },
  ],
  ["alternatives", { top: 5 }],
  ["stop tokens", { stopTokens: new Set(Array.from({ length: 12 }, (_, index) => index * 20)) }],
  ["fond of repetition", { sampling: { ...greedyJob, temperature: 0.5, seed: 3, frequencyPenalty: -0.5 } }],
  [
    "a continued answer",
    { draw: 7, generatedFrom: 3, sampling: { ...greedyJob, temperature: 0.3, topK: 4, seed: 1 } },
  ],
];

/** Decodes `truth` again with parts of it as drafts, some of them with a wrong token. */
async function guided(
  prompt: readonly number[],
  truth: readonly Generated[],
  more: Partial<Job>,
  seed: number,
) {
  const random = mulberry(seed);
  const id = await prefill(runner, Int32Array.from(prompt.slice(0, -1)));
  const { draw = 0, generatedFrom = prompt.length, top = 0 } = more;
  const said: SampledToken[] = [];
  let [accepted, rejected] = [0, 0];
  while (said.length < truth.length) {
    const { length } = runner.sequence(id);
    runner.splice(id, [{ start: length, end: length, count: 1 }]);
    const draft = truth.slice(said.length, said.length + Math.floor(random() * 9)).map(({ token }) => token);
    if (random() < 0.5 && draft.length > 0) {
      const index = Math.floor(random() * draft.length);
      draft[index] = (draft[index]! + 1) % 250;
    }
    const sample = { ...greedyJob, ...more.sampling, draw: draw + said.length, generatedFrom, top };
    const tokens = Int32Array.of(said.at(-1)?.token ?? prompt.at(-1)!);
    const { outcomes } = await runner.step([
      { sequence: id, tokens, sample, draftTokens: Int32Array.from(draft) },
    ]);
    runner.check();
    const outcome = outcomes[0]!;
    said.push(...(outcome.accepted ?? []), outcome);
    accepted += outcome.accepted?.length ?? 0;
    rejected += (outcome.drafted ?? 0) - (outcome.accepted?.length ?? 0);
  }
  const cells = Array.from(runner.inspect(id).tokens);
  runner.release(id);
  return { said: said.slice(0, truth.length), cells, accepted, rejected };
}

/** The tokens of `steps` decode steps after the sequence; the first step has a draft. */
async function decode(on: Runner, id: number, steps: number, first: number, draft: readonly number[] = []) {
  const said: SampledToken[] = [];
  for (let step = 0; step < steps; step++) {
    const { length } = on.sequence(id);
    on.splice(id, [{ start: length, end: length, count: 1 }]);
    const { outcomes } = await on.step([
      {
        sequence: id,
        tokens: Int32Array.of(said.at(-1)?.token ?? first),
        sample: { ...greedy, draw: step, generatedFrom: length },
        ...(draft.length > 0 && { draftTokens: Int32Array.from(draft) }),
      },
    ]);
    said.push(...(outcomes[0]!.accepted ?? []), outcomes[0]!);
  }
  return said;
}

function expectClose(got: { readonly logprob: number }, expected: { readonly logprob: number }): void {
  expect(Math.abs(got.logprob - expected.logprob)).toBeLessThan(1e-3);
}

describe("with lookup", () => {
  test.each(kinds)(
    "%s: tokens, logprobs, cells, pages and the exact length are those without",
    async (_, more) => {
      for (const prompt of prompts(4, 11)) {
        const plain = await answer(engine, prompt, more);
        const quick = await answer(engine, prompt, { ...more, lookup: true });
        expect(quick.items.map(({ token }) => token)).toEqual(plain.items.map(({ token }) => token));
        expect({ ...quick, items: [] }).toEqual({ ...plain, items: [] });
        for (const [index, item] of quick.items.entries()) {
          const expected = plain.items[index]!;
          expectClose(item, expected);
          expect(item.top.map(({ token }) => token)).toEqual(expected.top.map(({ token }) => token));
        }
      }
      expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
    },
  );

  test.each(kinds)(
    "%s: right and wrong draft tokens at any position give the same answer",
    async (_, more) => {
      let [right, wrong] = [0, 0];
      for (const [index, prompt] of prompts(3, 17).entries()) {
        const { items } = await answer(engine, prompt, more);
        const { said, cells, accepted, rejected } = await guided(prompt, items, more, index);
        expect(said.map(({ token }) => token)).toEqual(items.map(({ token }) => token));
        for (const [at, item] of said.entries()) {
          expectClose(item, items[at]!);
          expect(Array.from(item.topTokens)).toEqual(items[at]!.top.map(({ token }) => token));
        }
        expect(cells.slice(0, prompt.length + items.length - 1)).toEqual(
          [...prompt, ...items.map(({ token }) => token)].slice(0, -1),
        );
        right += accepted;
        wrong += rejected;
      }
      expect(right).toBeGreaterThan(5);
      expect(wrong).toBeGreaterThan(5);
    },
  );

  test("an answer that repeats itself has accepted draft tokens", async () => {
    const more = { sampling: { ...greedyJob, frequencyPenalty: -1 } };
    const [prompt] = prompts(1, 5) as [number[]];
    const plain = await answer(engine, prompt, more);
    const { acceptedTokens } = engine.stats();
    const quick = await answer(engine, prompt, { ...more, lookup: true });
    expect(quick.tokens).toEqual(plain.tokens);
    // How many is a matter of what rows were seen to cost; that some are is not.
    expect(engine.stats().acceptedTokens).toBeGreaterThan(acceptedTokens);
    expect(quick.items.some(({ drafted }) => drafted)).toBe(true);
  });

  test("streams with and without lookup in one batch do not affect each other", async () => {
    const asked = prompts(6, 23).map((prompt, index) => {
      const more = {
        sampling: { ...greedyJob, temperature: index % 2 === 0 ? 0 : 0.3, topK: 5, seed: index },
      };
      return { prompt, more };
    });
    const alone: Outcome[] = [];
    for (const { prompt, more } of asked) alone.push(await answer(engine, prompt, more));
    const together = await Promise.all(
      asked.map(({ prompt, more }, index) => answer(engine, prompt, { ...more, lookup: index !== 3 })),
    );
    expect(together.map(({ tokens }) => tokens)).toEqual(alone.map(({ tokens }) => tokens));
  });

  test("in a pool that is too small, drafts shrink and preempted answers are the same", async () => {
    const asked = prompts(5, 31);
    const expected: Outcome[] = [];
    for (const prompt of asked) expected.push(await answer(engine, prompt, {}));
    const tight = await openTiny("lookup", { pages: 16 });
    const small = new Engine(checked(tight), { stepTokens: 64 });
    const got = await Promise.all(asked.map((prompt) => answer(small, prompt, { lookup: true })));
    expect(got.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
    expect(small.stats().preemptions).toBeGreaterThan(0);
    expect(tight.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
    await small.close();
  });

  test("a cancelled answer leaves filled cells only, and the sequence continues unchanged", async () => {
    for (const [index, prompt] of prompts(4, 47).entries()) {
      const whole = await answer(engine, prompt, {});
      const sequence = engine.create();
      let read = 0;
      for await (const _ of sequence.run(job([append(sequence, prompt)], 50, { lookup: true }))) {
        if (++read === 5 + 7 * index) break;
      }
      const cells = Array.from(sequence.tokens());
      expect(cells).toEqual(whole.tokens.slice(0, cells.length));
      expect(sequence.exactLength).toBe(cells.length);
      sequence.release();
    }
  });
});

describe("the native step", () => {
  test.each(["f32", "f16", "bf16", "int8"] as const)(
    "over %s pages and packed weights, accepted draft tokens have the logprobs of plain decoding, bit for bit",
    async (kvType) => {
      const own = await openTinyPanels("lookup", { kvType, pages: 256 });
      // Around 1,024 cells, where attention begins to be cut into ranges, and in front of it.
      for (const length of [100, 1016]) {
        const plain = await decode(own, await prefill(own, tokensOf(length)), 17, 7);
        const draft = plain.slice(0, -1).map(({ token }) => token);
        const quick = await decode(own, await prefill(own, tokensOf(length)), 1, 7, draft);
        expect(quick.map(({ token, logprob }) => [token, logprob])).toEqual(
          plain.map(({ token, logprob }) => [token, logprob]),
        );
      }
      await own.close();
    },
  );

  test("computes at most maxDraftTokens, which keeps the bits of every row, and lookup asks for no more", async () => {
    const own = await openTiny("lookup", { pages: 8 });
    const { maxDraftTokens: most } = own.describe();
    expect(maxDraftTokens).toBeLessThanOrEqual(most);
    for (const [tokens, computed] of [
      [1, most],
      [5, most - 4],
      [17, 0],
      [30, 0],
    ] as const) {
      const id = await prefill(own, tokensOf(20));
      own.splice(id, [{ start: 20, end: 20, count: tokens }]);
      const sample = { ...greedy, generatedFrom: 20 };
      const draftTokens = new Int32Array(40);
      const { outcomes } = await own.step([{ sequence: id, tokens: tokensOf(tokens), sample, draftTokens }]);
      expect(outcomes[0]!.drafted ?? 0).toBe(computed);
      own.release(id);
    }
    await own.close();
  });

  test("rejected draft tokens leave the state of a step without them, also when it fails", async () => {
    const own = await openTiny("lookup", { pages: 4 });
    const [a, b] = [await prefill(own, tokensOf(20)), await prefill(own, tokensOf(20))];
    const sample = { ...greedy, generatedFrom: 20 };
    for (const id of [a, b]) own.splice(id, [{ start: 20, end: 20, count: 1 }]);
    const entry = { sequence: a, tokens: Int32Array.of(7), sample };
    const plain = (await own.step([entry])).outcomes[0]!;
    const wrong = Int32Array.from({ length: 30 }, () => (plain.token + 1) % 250);
    const guessed = (await own.step([{ ...entry, sequence: b, draftTokens: wrong }])).outcomes[0]!;
    // All four pages are allocated: only the rest of the open page of the sequence is left.
    expect(guessed).toMatchObject({ token: plain.token, accepted: [], drafted: 11 });
    const { slots, ...cells } = own.inspect(b);
    const { slots: others, ...expected } = own.inspect(a);
    expect(cells).toEqual(expected);
    expect(slots.length).toBe(others.length);
    own.check();
    for (const id of [a, b]) own.splice(id, [{ start: 21, end: 21, count: 1 }]);
    expect(Array.from(own.inspect(b).slots).at(-1)).toBe(slots.at(-1)! + 1);
    const mask = Int32Array.of(-1);
    for (const bad of [
      { ...entry, draftTokens: Int32Array.of(100_000) },
      { ...entry, draftTokens: wrong, sample: { ...sample, mask } },
      { sequence: a, tokens: Int32Array.of(7), draftTokens: wrong },
    ])
      expect(() => own.step([bad])).toThrowError(/[Dd]raft token/);
    own.check();
    await own.close();
  });
});
