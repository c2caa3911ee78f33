// Wrong KV: cells of one session, model, tenant or exactness used for another. An answer is right when it equals that
// of a cold start; sampling is greedy, so that one wrong cell shows.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import type { Runner } from "../../src/engine/addon.ts";
import { PrefixIndex } from "../../src/session/residency/prefix-index.ts";
import { assistant, ids, openTinyStack, system, type TinyStack, turns, user } from "../support/tiny-stack.ts";

let stack: TinyStack;
beforeAll(async () => {
  stack = await openTinyStack();
});
afterAll(() => stack?.close());

test("two models in one process do not share pages", async () => {
  const other = await openTinyStack({ model: { seed: 99, id: "other" } });
  const prompts = [turns(3, "both"), turns(5, "models"), turns(3, "alternate")];
  const alone = [];
  for (const { cold } of [stack, other]) for (const prompt of prompts) alone.push((await cold(prompt)).text);
  const together = await Promise.all(
    [stack, other].flatMap(({ ask }) => prompts.map((prompt) => ask(prompt, { reuse: "prefix" }))),
  );
  expect(together.map(({ text }) => text)).toEqual(alone);
  expect(alone.slice(0, 3)).not.toEqual(alone.slice(3));
  other.runner.check();
  await other.close();
});

test("after a deletion every layer has the cells of the sequence", async () => {
  stack.clear();
  const { runner } = stack;
  await stack.ask(ids(200), { session: "cut", maxTokens: 1 });
  await stack.ask([...ids(200).slice(0, 40), ...ids(200).slice(120)], { session: "cut", maxTokens: 1 });
  const length = 120;
  const id = sequenceOf(stack, length);
  const { layers, kvHeads, headDim } = runner.describe();
  const births = Array.from(runner.inspect(id).births);
  for (let layer = 0; layer < layers; layer++) {
    const cells = runner.inspect(id, layer);
    expect(cells.keys!.length).toBe(length * kvHeads * headDim);
    expect(cells.values!.length).toBe(length * kvHeads * headDim);
    expect(Array.from(cells.births)).toEqual(births);
  }
  runner.check();
});

/** The sequence with so many cells; ids are small numbers. */
function sequenceOf({ runner }: TinyStack, length: number): number {
  for (let id = 0; id < 10_000; id++) {
    try {
      if (runner.sequence(id).length === length) return id;
    } catch {
      // released, or never there
    }
  }
  throw new Error(`no sequence has ${length} cells`);
}

test("prompts with colliding hashes are distinguished by their ids", () => {
  const index = new PrefixIndex<string>(16, () => "same");
  index.set("ann", undefined, Int32Array.from(ids(64, 1)));
  index.set("bob", undefined, Int32Array.from(ids(64, 2)));
  const usable = () => 64;
  const wanted = Int32Array.from([...ids(64, 2).slice(0, 48), ...ids(16, 3)]);
  expect(index.find(undefined, wanted, usable)).toMatchObject({ holder: "bob", count: 48 });
  expect(index.find(undefined, Int32Array.from(ids(64, 4)), usable)?.count ?? 0).toBe(0);
});

test("the same word as tenant and as session id does not merge two sessions", async () => {
  const prompt = turns(5, "secret");
  const words = ["a", "b", "a\0b", "", "undefined"];
  const pairs = words.flatMap((tenant) => words.map((session) => ({ tenant, session: session || "empty" })));
  for (const [place, pair] of pairs.entries()) {
    const own = [...prompt, user(`number ${place}`)].filter((_, at) => at !== 5);
    const { cacheUsage } = await stack.ask(own, { ...pair, maxTokens: 1 });
    const before = pairs.slice(0, place).some(({ tenant }) => tenant === pair.tenant);
    // The first of a tenant finds nothing, however like the others it is.
    if (!before) expect([pair, cacheUsage.kept, cacheUsage.relocated]).toEqual([pair, 0, 0]);
  }
  for (const tenant of words) {
    const seen = stack.backend.sessions(tenant).map(({ id }) => id);
    const mine = pairs.filter((pair) => pair.tenant === tenant).map(({ session }) => session);
    expect(seen.toSorted()).toEqual([...new Set(mine)].toSorted());
    for (const id of seen) stack.backend.deleteSession(id, tenant);
  }
});

test("rejected draft tokens are in no cell and in no cached prefix", async () => {
  /** What the cache would hold had the proposals behind the accepted ones stayed. */
  const never: { tokens: number[]; said: number }[] = [];
  const guessing = await openTinyStack({ wrap: (runner) => noting(runner, never) });
  for (let turn = 0; turn < 8; turn++) {
    const words = ids(6, turn);
    const prompt = [...words, 250, ...words, 251, ...words, ...words.slice(0, 3)];
    await guessing.ask(prompt, { session: `guess-${turn}`, maxTokens: 40, lookup: true });
  }
  guessing.runner.check();
  expect(never.length).toBeGreaterThan(4);
  for (const [place, { tokens, said }] of never.slice(0, 12).entries()) {
    const whole = [...tokens, ...ids(5, 31)];
    const hit = await guessing.ask(whole, { session: `other-${place}`, reuse: "prefix" });
    expect(hit.cacheUsage.kept).toBeLessThanOrEqual(said);
    expect(hit.text).toBe((await guessing.cold(whole)).text);
  }
  await guessing.close();
});

function noting(inner: Runner, never: { tokens: number[]; said: number }[]): Runner {
  const step: Runner["step"] = async (entries) => {
    const result = await inner.step(entries);
    for (const [place, { sequence, draftTokens }] of entries.entries()) {
      const { accepted = [], drafted = 0 } = result.outcomes[place]!;
      if (accepted.length === drafted) continue;
      const tokens = Array.from(inner.inspect(sequence).tokens);
      const rejected = draftTokens!.subarray(accepted.length, drafted);
      never.push({ tokens: [...tokens, ...rejected], said: tokens.length });
    }
    return result;
  };
  return new Proxy(inner, {
    get(target, key) {
      const value: unknown = key === "step" ? step : Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

test("a cache hit of any number of pages gives the answer of a miss", async () => {
  const whole = ids(16 * 7, 32);
  for (let pages = 1; pages <= 6; pages++)
    for (const over of [-1, 0, 1]) {
      const session = `hit-${pages}-${over}`;
      const kept = pages * 16 + over;
      await stack.ask(whole.slice(0, kept), { session, maxTokens: 1, reuse: "none" });
      const hit = await stack.ask(whole, { session, reuse: "prefix" });
      expect([session, hit.cacheUsage.kept]).toEqual([session, kept]);
      expect([session, hit.text]).toEqual([session, (await stack.cold(whole)).text]);
      stack.backend.deleteSession(session);
    }
});

test("page reuse in every number format equals a cold start in that format", async () => {
  for (const kvType of ["f16", "bf16", "int8"]) {
    const small = await openTinyStack({ flags: { "cache.kv_type": kvType, "cache.tokens": "2048" } });
    const whole = ids(150, 33);
    await small.ask(whole.slice(0, 100), { session: "s", maxTokens: 1 });
    const hit = await small.ask(whole, { session: "s", reuse: "prefix" });
    expect([kvType, hit.cacheUsage.kept]).toEqual([kvType, 100]);
    expect([kvType, hit.text]).toEqual([kvType, (await small.cold(whole)).text]);
    await small.close();
  }
});

// A length per layer does not exist: models with sliding windows are refused at import (shift.test.ts).

test("stale cells of one session are not an exact prefix for another", async () => {
  stack.clear();
  const before: Message[] = [system("You keep the stack and tell the truth about it."), ...turns(9, "long")];
  await stack.ask(before, { session: "a", maxTokens: 1 });
  const after = [before[0]!, user("In short: words."), ...before.slice(4)];
  const edited = await stack.ask(after, { session: "a", maxTokens: 1 });
  expect(edited.cacheUsage.relocated).toBeGreaterThan(200);
  const next = [...after, assistant("So."), user("And?")];
  const exact = edited.cacheUsage.kept + edited.cacheUsage.computed;
  const cold = await stack.cold(next);
  for (const reuse of ["suffix", "prefix"] as const) {
    const { text, cacheUsage } = await stack.ask(next, { session: "b", reuse });
    expect(cacheUsage.kept).toBeLessThanOrEqual(exact);
    expect([cacheUsage.relocated, cacheUsage.stale, text]).toEqual([0, 0, cold.text]);
    stack.backend.deleteSession("b");
  }
  // In the session itself the same prompt may be approximate, and then the cache usage says so.
  const own = await stack.ask(next, { session: "a" });
  expect(own.cacheUsage.stale).toBeGreaterThan(200);
});
