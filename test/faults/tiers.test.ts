// Faults of the disk tier: a session written to a file must not be restored into another session, late, twice or not
// at all; pages and files stay within their budgets.
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import type { Runner } from "../../src/engine/addon.ts";
import {
  openTinyStack,
  type TinyStack,
  type TinyStackOptions,
  turns,
  until,
  user,
} from "../support/tiny-stack.ts";

let folder: string;
let stack: TinyStack;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-tier-"));
});
afterEach(async () => {
  stack.runner.check();
  await stack.close();
  rmSync(folder, { recursive: true });
});

/** Room for two of the conversations below, and a folder for the others. */
async function openTight({ flags, ...more }: TinyStackOptions = {}): Promise<void> {
  const tight = { "cache.tokens": "1024", "cache.dir": folder, ...flags };
  stack = await openTinyStack({ flags: tight, ...more });
}

/** About 400 tokens, unlike any other. */
const conversation = (name: string) => turns(5, name, 12);
const further = (name: string) =>
  [...conversation(name), user(`Once more, ${name}.`)].filter((_, at) => at !== 4);
/** Leading tokens that two conversations have in common. */
function shared(a: readonly Message[], b: readonly Message[]): number {
  const [one, other] = [a, b].map((messages) => stack.backend.applyTemplate(messages).tokens);
  const end = one!.findIndex((id, place) => other![place] !== id);
  return end < 0 ? one!.length : end;
}

const bytesIn = () => readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
const sessionsOf = (count: number) => Array.from({ length: count }, (_, place) => `tier${place}`);

test("two sessions evicted in one tick do not swap their answers", async () => {
  await openTight();
  const names = sessionsOf(6);
  const cold = new Map<string, string>();
  for (const name of names) cold.set(name, (await stack.cold(further(name))).text);
  expect(new Set(cold.values()).size).toBe(names.length);
  for (let round = 0; round < 4; round++) {
    for (let pair = 0; pair < names.length; pair += 2) {
      // Two new ones need all pages, so the two before them go at once.
      const two = names.slice(pair, pair + 2);
      await Promise.all(two.map((name) => stack.ask(conversation(name), { session: name, reuse: "prefix" })));
      const answers = await Promise.all(
        two.map((name) => stack.ask(further(name), { session: name, reuse: "prefix" })),
      );
      for (const [place, { text, cacheUsage, promptTokens }] of answers.entries()) {
        expect([round, two[place], text]).toEqual([round, two[place], cold.get(two[place]!)]);
        expect(cacheUsage.kept + cacheUsage.relocated + cacheUsage.computed).toBe(promptTokens);
      }
    }
  }
  expect(stack.backend.counts().evictions).toBeGreaterThan(4);
});

test("a request during the write of its session to a file is answered correctly", async () => {
  const wrap = (runner: Runner): Runner =>
    new Proxy(runner, {
      get(target, key) {
        const value = Reflect.get(target, key) as unknown;
        if (typeof value !== "function") return value;
        if (key !== "save" && key !== "load") return value.bind(target);
        return async (...given: unknown[]) => {
          await sleep(30);
          const result: unknown = await value.apply(target, given);
          await sleep(30);
          return result;
        };
      },
    });
  await openTight({ wrap });
  const names = sessionsOf(4);
  const cold = new Map<string, string>();
  for (const name of names) cold.set(name, (await stack.cold(further(name))).text);
  for (let round = 0; round < 3; round++) {
    for (const name of names) await stack.ask(conversation(name), { session: name, reuse: "prefix" });
    // The first ones are being written now, or just were.
    const answers = await Promise.all(
      names.map((name) => stack.ask(further(name), { session: name, reuse: "prefix" })),
    );
    expect(answers.map(({ text }) => text)).toEqual(names.map((name) => cold.get(name)));
  }
});

test("sessions restored from files after mixed load answer as before", async () => {
  await openTight();
  const names = sessionsOf(6);
  const cold = new Map<string, string>();
  for (const name of names) cold.set(name, (await stack.cold(further(name))).text);
  for (const name of names) await stack.ask(conversation(name), { session: name });
  await Promise.all(
    Array.from({ length: 8 }, (_, n) => stack.ask(turns(3, `load${n}`, 12), { maxTokens: 4 })),
  );
  for (const name of names) {
    const { text, cacheUsage } = await stack.ask(further(name), { session: name, reuse: "prefix" });
    expect([name, text]).toEqual([name, cold.get(name)]);
    // Honest about it: no more was reused than the two prompts share, and something was.
    expect(cacheUsage.kept).toBeGreaterThan(100);
    expect(cacheUsage.kept).toBeLessThanOrEqual(shared(conversation(name), further(name)));
  }
});

test("pages and files stay within their budgets, and the gauges show their use", async () => {
  // A session of about 400 tokens is some 200 KiB.
  await openTight({ flags: { "cache.disk": "1M" } });
  for (const name of sessionsOf(16)) {
    await stack.ask(conversation(name), { session: name, maxTokens: 2 });
    const { pagesUsed, pagesFree, pages } = stack.runner.stats();
    expect(pagesUsed + pagesFree).toBe(pages);
  }
  await until(() => stack.backend.counts().diskWrites > 6);
  await until(() => bytesIn() <= 2 ** 20);
  const { diskBytes, diskWrites } = stack.backend.counts();
  expect(diskBytes).toBeLessThanOrEqual(2 ** 20);
  expect(diskBytes).toBeGreaterThan(0);
  expect(diskWrites).toBeGreaterThan(6);
});

test("sessions written to files are restored, and both are counted", async () => {
  await openTight();
  const names = sessionsOf(5);
  for (const name of names) await stack.ask(conversation(name), { session: name, maxTokens: 2 });
  await until(() => stack.backend.counts().diskWrites >= 2);
  const { cacheUsage } = await stack.ask(further(names[0]!), { session: names[0]!, maxTokens: 2 });
  expect(stack.backend.counts().diskHits).toBe(1);
  expect(cacheUsage.kept).toBeGreaterThan(100);
  expect(cacheUsage.reason).toMatch(/disk|file/i);
});
