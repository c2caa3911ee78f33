import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import { hashing } from "../support/fake-engine.ts";
import { ask, assistant, localChat, long, system, user } from "../support/fake-engine-chat.ts";
import { openTinyChat } from "../support/tiny-chat.ts";

const exchange = (name: string): Message[] => [user(long(`ask ${name}`)), assistant(long(`tell ${name}`))];
const [one, two, three] = ["one", "two", "three"].map(exchange) as Message[][];
const turn = user("And now?");
const history = [system, user("Begin."), ...one!, ...two!, ...three!, turn];
const compacted = [system, user("Begin."), user("[memory] one and two."), ...three!];
const expanded = [...compacted, assistant("I expand."), ...one!, ...two!, turn];

let folder: string;
let lines: string[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-victims-"));
  lines = [];
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  expect(lines).toEqual([]);
});

const open = (more: object = {}) =>
  localChat(hashing(256), {
    disk: { folder, bytes: 1 << 30 },
    log: (line) => lines.push(line),
    ...more,
  });
const settings = { session: "s", maxTokens: 2 };
const other = { messages: [user(long("z"))], session: "t", maxTokens: 2 };
const sidecars = () =>
  readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .map((name) => JSON.parse(readFileSync(join(folder, name), "utf8")) as { id: string; of?: string });

describe("victims on disk", () => {
  it("are restored for an expand after the session was evicted, and after a restart", async () => {
    const { chat, engine } = open({ sessionsMax: 1 });
    await ask(chat, { messages: history, ...settings });
    await ask(chat, { messages: [...compacted, turn], ...settings });
    await ask(chat, other);
    const computed = engine.tokensComputed;
    const { cacheUsage } = await ask(chat, { messages: expanded, ...settings });
    expect(cacheUsage.reason).toContain("were adopted");
    expect(cacheUsage.computed).toBeLessThan(90);
    expect(engine.tokensComputed - computed).toBe(cacheUsage.computed + 1);
    await chat.close();
    expect(engine.sequences.size).toBe(0);
    const next = open();
    const again = await ask(next.chat, { messages: [...compacted, turn], ...settings });
    // Removing the copies again is an edit too.
    expect(again.cacheUsage.computed).toBeLessThan(90);
    await next.chat.close();
    const last = open();
    const third = await ask(last.chat, { messages: [...compacted, ...two!, turn], ...settings });
    expect(third.cacheUsage.computed).toBeLessThan(60);
    await last.chat.close();
  });

  it("are written when they are evicted, while the session stays", async () => {
    const { chat } = open({ capacity: 2500 });
    await ask(chat, { messages: history, ...settings });
    await ask(chat, { messages: [...compacted, turn], ...settings });
    await ask(chat, { ...other, messages: [user("z".repeat(1000))] });
    expect(chat.stats()).toMatchObject({ sessions: 2, undoable: 0, evictions: 0 });
    chat.delete("t");
    const { cacheUsage } = await ask(chat, { messages: expanded, ...settings });
    expect(cacheUsage.reason).toContain("were adopted");
    expect(cacheUsage.computed).toBeLessThan(90);
  });

  it.each(["delete", "forget"])("are deleted with the session on %s", async (end) => {
    const { chat } = open({ sessionsMax: 1 });
    await ask(chat, { messages: history, ...settings });
    await ask(chat, { messages: [...compacted, turn], ...settings });
    await ask(chat, other);
    if (end === "delete") chat.delete("s");
    else await ask(chat, { messages: [...compacted, turn], ...settings, forget: true });
    const { cacheUsage } = await ask(chat, { messages: expanded, ...settings });
    expect(cacheUsage.computed).toBeGreaterThan(600);
    await chat.close();
    expect(sidecars().filter(({ of }) => of !== undefined)).toEqual([]);
  });

  it("belong to their session and tenant only", async () => {
    const { chat } = open({ sessionsMax: 1 });
    await ask(chat, { messages: history, ...settings, tenant: "one" });
    await ask(chat, { messages: [...compacted, turn], ...settings, tenant: "one" });
    await ask(chat, other);
    const { cacheUsage } = await ask(chat, { messages: expanded, ...settings, tenant: "two" });
    expect(cacheUsage).toMatchObject({ kept: 0, relocated: 0 });
    const named = await ask(chat, { messages: expanded, session: "u", maxTokens: 2, tenant: "one" });
    expect(named.cacheUsage).toMatchObject({ relocated: 0 });
    await chat.close();
  });
});

describe("an anonymous conversation on disk", () => {
  it("is found by the spans that survive a compaction from the first message on", async () => {
    const { chat } = open({ sessionsMax: 1 });
    const first = await ask(chat, { messages: history.slice(1), maxTokens: 2 });
    await ask(chat, other);
    const messages = [user("[memory] the beginning."), ...two!, ...three!, turn];
    const { cacheUsage } = await ask(chat, { messages, maxTokens: 2 });
    expect(cacheUsage.reason).toContain("came from disk");
    expect(cacheUsage.session).toBe(first.cacheUsage.session);
    expect(cacheUsage.relocated).toBeGreaterThan(600);
    await ask(chat, other);
    const stranger = await ask(chat, {
      messages: [user("Something else."), ...two!],
      maxTokens: 2,
      reuse: "prefix",
    });
    expect(stranger.cacheUsage.relocated).toBe(0);
    await chat.close();
  });
});

describe("on the real engine", () => {
  it("writes and reads victims unchanged, and idle repair then makes the copies exact", async () => {
    const disk = { folder, bytes: 1 << 28 };
    const real = await openTinyChat("session-victims", {
      disk,
      sessionsMax: 1,
      idleRepair: true,
      idleDelayMs: 0,
    });
    const { chat, engine, runner } = real;
    await ask(chat, { messages: history, ...settings });
    await ask(chat, { messages: [...compacted, turn], ...settings });
    await ask(chat, other);
    const before = engine.stats().tokensComputed;
    const { cacheUsage } = await ask(chat, { messages: expanded, ...settings });
    expect(cacheUsage.reason).toContain("were adopted");
    expect(cacheUsage.computed).toBeLessThan(90);
    expect(engine.stats().tokensComputed - before).toBeGreaterThanOrEqual(cacheUsage.computed + 1);
    runner.check();
    for (let wait = 0; wait < 2000 && chat.stats().staleTokens > 0; wait++)
      await new Promise((wake) => setTimeout(wake, 2));
    const request = { messages: [...expanded, user("And then?")], maxTokens: 6 };
    const warm = await ask(chat, { ...request, session: "s" });
    expect(warm.cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
    expect(warm.answer).toBe((await ask(chat, { ...request, session: "cold", reuse: "none" })).answer);
    runner.check();
    await chat.close();
    expect(engine.stats()).toMatchObject({ sequences: 0, pagesUsed: 0 });
    await real.close();
  });
});
