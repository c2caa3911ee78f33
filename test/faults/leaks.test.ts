// Page leaks, double releases, prompts that do not fit, failures that affect other requests. Counted on the real
// runner; every test ends with all pages free.
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Runner, StepEntry } from "../../src/engine/addon.ts";
import { PocketError, pocketError } from "../../src/errors.ts";
import { eventsOf, ids, openTinyStack, type TinyStack, turns, until } from "../support/tiny-stack.ts";

const context = 512;
/** Called around every step; may throw. */
let before: (entries: readonly StepEntry[]) => void = () => {};
let after: () => void = () => {};
let steps = 0;
let stack: TinyStack;

beforeEach(async () => {
  before = after = () => {};
  steps = 0;
  const wrap = (runner: Runner): Runner =>
    new Proxy(runner, {
      get(target, key) {
        const value = Reflect.get(target, key) as unknown;
        if (key === "step")
          return async (entries: readonly StepEntry[]) => {
            steps++;
            before(entries);
            const result = await target.step(entries);
            after();
            return result;
          };
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  stack = await openTinyStack({
    model: { context },
    flags: { "cache.tokens": "1024", step_tokens: "64" },
    wrap,
  });
});
afterEach(async () => {
  await stack.release();
  const { pages, pagesFree, pagesUsed, cells } = stack.runner.stats();
  expect({ pagesFree, pagesUsed, cells }).toEqual({ pagesFree: pages, pagesUsed: 0, cells: 0 });
  stack.runner.check();
  await stack.close();
});

test("a client that disconnects at any of twelve points leaks no page", async () => {
  const points = 12;
  for (let round = 0; round < 20; round++)
    for (let point = 0; point < points; point++) {
      const { signal, leave } = abortable();
      steps = 0;
      // Points 0 to 3: before a step computes; 4 to 7: after it, before its result is read; 8 to 11: at an event.
      before = () => (point < 4 && steps === point + 1 ? leave() : undefined);
      after = () => (point >= 4 && point < 8 && steps === point - 3 ? leave() : undefined);
      const events = eventsOf(stack.backend, ids(150, point), { maxTokens: 6, signal, session: `s${round}` });
      if (point === 8) leave();
      let seen = 0;
      const reading = (async () => {
        for await (const _ of events) {
          seen++;
          if (point === 11 && seen === 2) break;
          if (point > 8 && seen === point - 8) leave();
        }
      })();
      await reading.catch((cause: PocketError) => expect([point, cause.code]).toEqual([point, "CANCELLED"]));
      stack.runner.check();
    }
  expect(stack.backend.sessions().some(({ busy }) => busy)).toBe(false);
});

function abortable(): { readonly signal: AbortSignal; readonly leave: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, leave: () => controller.abort(pocketError("CANCELLED")) };
}

test("a hundred prompts that are too long take no page and no step", async () => {
  for (let attempt = 0; attempt < 100; attempt++) {
    const asked = stack.ask(ids(context + 1 + attempt, attempt), { session: `long-${attempt % 3}` });
    await expect(asked).rejects.toMatchObject({ code: "CONTEXT_LENGTH_EXCEEDED", status: 400 });
  }
  expect(steps).toBe(0);
  expect(stack.runner.stats().pagesUsed).toBe(0);
});

test("a double release has no effect, and a failed allocation frees its pages", async () => {
  await stack.ask(ids(100), { session: "s" });
  stack.backend.deleteSession("s");
  expect(() => stack.backend.deleteSession("s")).toThrow(
    expect.objectContaining({ code: "SESSION_NOT_FOUND" }),
  );
  await until(() => stack.runner.stats().sequences === 0);
  const { runner } = stack;
  const id = runner.newSequence();
  const free = runner.stats().pagesFree;
  expect(() => runner.splice(id, [{ start: 0, end: 0, count: 1025 }])).toThrow(PocketError);
  expect(runner.stats().pagesFree).toBe(free);
  runner.check();
  runner.release(id);
  runner.release(id);
  expect(runner.stats().pagesFree).toBe(runner.stats().pages);
});

test("a prompt of context - 1 tokens is answered, longer ones are refused", async () => {
  const fits = await stack.ask(ids(context - 1), { session: "s", maxTokens: 50 });
  expect([fits.completionTokens, fits.finish]).toEqual([1, "length"]);
  const none = { code: "CONTEXT_LENGTH_EXCEEDED" };
  await expect(stack.ask(ids(context), { session: "s" })).rejects.toMatchObject(none);
  await expect(stack.ask(ids(context + 1), { session: "s" })).rejects.toMatchObject(none);
});

test("an edit that makes a prompt too long is refused and leaves the session unchanged", async () => {
  const short = ids(300, 1);
  await stack.ask(short, { session: "s", maxTokens: 1 });
  const longer = [...short.slice(0, 100), ...ids(300, 2), ...short.slice(100)];
  await expect(stack.ask(longer, { session: "s" })).rejects.toMatchObject({
    code: "CONTEXT_LENGTH_EXCEEDED",
  });
  const { cacheUsage } = await stack.ask([...short, 1, 2, 3], { session: "s", maxTokens: 1 });
  expect(cacheUsage.kept).toBe(300);
});

test("two hundred requests in a row at the limit of the context all end", async () => {
  for (let turn = 0; turn < 200; turn++) {
    const { promptTokens, completionTokens } = await stack.ask(ids(context - 1 - (turn % 3), 5), {
      session: "brim",
      maxTokens: 3,
    });
    expect(promptTokens + completionTokens).toBeLessThanOrEqual(context);
  }
});

test("a request that overflows the context or the pool fails alone", async () => {
  const others = [1, 2, 3].map((salt) => ids(100, salt));
  const alone = [];
  for (const prompt of others) alone.push((await stack.cold(prompt, { maxTokens: 30 })).text);
  const running = others.map((prompt, place) =>
    stack.ask(prompt, { maxTokens: 30, session: `n${place}`, reuse: "none" }),
  );
  await until(() => Number(stack.backend.health().engine.running) > 0);
  const over = stack.ask(ids(context + 5, 9));
  await expect(over).rejects.toMatchObject({ code: "CONTEXT_LENGTH_EXCEEDED" });
  const runsOn = await stack.ask(ids(context - 20, 9), { session: "a", maxTokens: 500 });
  expect(runsOn.promptTokens + runsOn.completionTokens).toBeLessThanOrEqual(context);
  expect((await Promise.all(running)).map(({ text }) => text)).toEqual(alone);
});

test("a new session is served after others have filled the pool", async () => {
  const pool = 1024 / 512;
  for (let filler = 0; filler < pool; filler++)
    await stack.ask(ids(500, filler), { session: `f${filler}`, maxTokens: 1 });
  const { text } = await stack.ask(ids(400, 77), { session: "new" });
  expect(text).toBe((await stack.cold(ids(400, 77))).text);
});

test("every bad call to the addon is an error with a code, and the process continues", () => {
  const { runner } = stack;
  const id = runner.newSequence();
  runner.splice(id, [{ start: 0, end: 0, count: 10 }]);
  const bad: readonly (() => unknown)[] = [
    () => runner.splice(id, [{ start: 5, end: 20, count: 0 }]),
    () => runner.splice(id, [{ start: 8, end: 2, count: 0 }]),
    () => runner.splice(id, [{ start: -1, end: 2, count: 0 }]),
    () => runner.splice(id, [{ start: 0, end: 1, count: -3 }]),
    () => runner.splice(id, [{ start: 0, end: 1, count: 2 ** 40 }]),
    () => runner.splice(id, [{ start: 0.5, end: 1, count: 1 }]),
    () => runner.splice(id, [{ start: Number.NaN, end: 1, count: 1 }]),
    () =>
      runner.splice(id, [
        { start: 2, end: 6, count: 0 },
        { start: 4, end: 8, count: 0 },
      ]),
    () => runner.splice(999_999, [{ start: 0, end: 0, count: 1 }]),
    () => runner.splice(-1, []),
    () => runner.fork(id, 5),
    () => runner.fork(id, 11),
    () => runner.fork(999_999, 0),
    () => runner.adopt(id, id, 0, 20),
    () => runner.adopt(id, 999_999, 0, 1),
    () => runner.sequence(999_999),
    () => runner.inspect(999_999),
    () => runner.inspect(id, 99),
  ];
  for (const call of bad) expect(call, String(call)).toThrow(PocketError);
  expect(runner.sequence(id)).toMatchObject({ length: 10, gapTokens: 10 });
  runner.check();
  runner.release(id);
});

test("a bad step is rejected with a code, and the next good one is computed", async () => {
  const { runner } = stack;
  const id = runner.newSequence();
  runner.splice(id, [{ start: 0, end: 0, count: 4 }]);
  const entries: readonly StepEntry[][] = [
    [{ sequence: id, tokens: Int32Array.of(1, 2, 3, 4, 5) }],
    [{ sequence: id, tokens: Int32Array.of(1, 2, 99_999) }],
    [{ sequence: id, tokens: Int32Array.of(-1) }],
    [{ sequence: id, tokens: new Int32Array(0) }],
    [{ sequence: 999_999, tokens: Int32Array.of(1) }],
  ];
  for (const bad of entries)
    await expect((async () => runner.step(bad))(), JSON.stringify(bad)).rejects.toBeInstanceOf(PocketError);
  await runner.step([{ sequence: id, tokens: Int32Array.of(1, 2, 3, 4) }]);
  expect(runner.sequence(id).gapTokens).toBe(0);
  runner.check();
  runner.release(id);
});

test("a short prompt is answered within three steps during long prefills and decodes", async () => {
  const streams = [1, 2].map((salt) => stack.ask(ids(20, salt), { session: `d${salt}`, maxTokens: 60 }));
  const reading = [3, 4].map((salt) => stack.ask(ids(300, salt), { session: `p${salt}`, maxTokens: 1 }));
  await until(() => steps > 0);
  const since = steps;
  await stack.ask(ids(20, 8), { session: "short", maxTokens: 1 });
  // The step under way when it came, the one that reads it, and one for the way back.
  expect(steps - since).toBeLessThanOrEqual(3);
  await Promise.all([...streams, ...reading]);
});

test("a running decode gets a token in every step while prompts wait", async () => {
  const stream = stack.ask(turns(1, "stream"), { session: "d", maxTokens: 40 });
  await until(() => steps > 0);
  const since = steps;
  const prompts = [1, 2, 3].map((salt) => stack.ask(ids(150, salt), { session: `p${salt}`, maxTokens: 1 }));
  const { completionTokens } = await stream;
  const passed = steps - since;
  await Promise.all(prompts);
  expect(passed).toBeLessThanOrEqual(completionTokens + 3);
});
