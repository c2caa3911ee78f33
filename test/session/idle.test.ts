import { describe, expect, it } from "vitest";
import { nextRepair } from "../../src/session/planner/repair.ts";
import { type Span, spanOf } from "../../src/text/span.ts";
import { hashing } from "../support/fake-engine.ts";
import { ask, compacted, history, localChat, long, user } from "../support/fake-engine-chat.ts";

/** Waits until the condition holds; fails with the last value. */
async function settled(stale: () => number): Promise<void> {
  for (let turn = 0; turn < 2000 && stale() > 0; turn++) await new Promise((wake) => setTimeout(wake, 2));
  expect(stale()).toBe(0);
}

describe("the next cells to repair", () => {
  const span = (role: Span["role"], length: number) => spanOf(role, new Int32Array(length).fill(length));
  const spans = [span("system", 10), span("user", 20), span("assistant", 30), span("user", 40)];

  it("are relocated cells of assistant messages, then front to back, up to a limit", () => {
    const relocated = [{ start: 15, end: 90 }];
    const repairable = { spans, relocated, exactLength: 15 };
    expect(nextRepair(repairable, 100, 20)).toEqual({ start: 30, end: 50 });
    const half = [
      { start: 15, end: 30 },
      { start: 50, end: 90 },
    ];
    expect(nextRepair({ ...repairable, relocated: half }, 100, 20)).toEqual({ start: 50, end: 60 });
    const others = [
      { start: 15, end: 30 },
      { start: 60, end: 90 },
    ];
    expect(nextRepair({ ...repairable, relocated: others }, 100, 20)).toEqual({ start: 15, end: 35 });
    expect(nextRepair({ spans, relocated: [], exactLength: 95 }, 100, 20)).toEqual({ start: 95, end: 100 });
    expect(nextRepair({ spans, relocated: [], exactLength: 100 }, 100, 20)).toBeUndefined();
  });
});

describe("idle repair", () => {
  it("makes every session exact while the engine is idle, assistant messages first, in small background jobs", async () => {
    const { chat, engine } = localChat(hashing(256), { idleRepair: true, idleDelayMs: 0, undoMax: 0 });
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 2 });
    const { staleTokens } = chat.stats();
    expect(staleTokens).toBeGreaterThan(300);
    const before = engine.jobs.length;
    await settled(() => chat.stats().staleTokens);
    const jobs = engine.jobs.slice(before);
    for (const { background, maxTokens, splices } of jobs) {
      expect([background, maxTokens, splices.length]).toEqual([true, 0, 1]);
      expect(splices[0]!.tokens.length).toBe(splices[0]!.end - splices[0]!.start);
      expect(splices[0]!.tokens.length).toBeLessThanOrEqual(128);
    }
    const message = Array.from(jobs[0]!.splices[0]!.tokens);
    expect(chat.detokenize(message)).toContain("d 1, d 2");
    const assistants = chat.tokenize(long("d")).length;
    expect(chat.stats().repairedTokens).toBeGreaterThanOrEqual(staleTokens + assistants);
    expect(chat.stats().repairedTokens).toBeLessThan(staleTokens + assistants + 40);
    // No request and no stale cells: no work.
    const { length } = engine.jobs;
    await new Promise((wake) => setTimeout(wake, 30));
    expect(engine.jobs.length).toBe(length);
    await chat.close();
    expect(engine.sequences.size).toBe(0);
  });

  it("is off by default", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 2 });
    await new Promise((wake) => setTimeout(wake, 80));
    expect(chat.stats()).toMatchObject({ repairedTokens: 0 });
    expect(chat.stats().staleTokens).toBeGreaterThan(300);
  });

  it("stops within one step when a request arrives, for the same session or another, and changes nothing", async () => {
    const { chat, engine } = localChat(hashing(256), { idleRepair: true, idleDelayMs: 0, undoMax: 0 });
    engine.stepTokens = 8;
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 2 });
    for (const session of ["s", "t", "s"]) {
      const before = engine.jobs.length;
      while (engine.jobs.length === before) await new Promise((wake) => setTimeout(wake, 1));
      const next = [...compacted, user(`more for ${session}`)];
      const steps = engine.tokensComputed;
      const { cacheUsage } = await ask(chat, { messages: next, session, maxTokens: 2 });
      if (session === "s") expect(cacheUsage.computed).toBeLessThan(80);
      // Besides the counted tokens and one token fed back, at most the running step was computed.
      expect(engine.tokensComputed - steps).toBeLessThanOrEqual(cacheUsage.computed + 1 + engine.stepTokens);
    }
    await chat.close();
    expect(engine.sequences.size).toBe(0);
  });

  it("does not change a session if the pool has no pages for its repair", async () => {
    const probe = localChat(hashing(256));
    const { promptTokens } = await ask(probe.chat, { messages: history, maxTokens: 2 });
    const lines: string[] = [];
    const { chat, engine } = localChat(hashing(256), {
      idleRepair: true,
      idleDelayMs: 0,
      undoMax: 0,
      capacity: promptTokens + 40,
      log: (line) => lines.push(line),
    });
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 2, reuse: "suffix" });
    const filler = engine.tokensFree - 20;
    if (filler > 0)
      await ask(chat, { messages: [user("z".repeat(filler - 60))], session: "z", maxTokens: 2 });
    await new Promise((wake) => setTimeout(wake, 30));
    expect(chat.list().map(({ id }) => id)).toContain("s");
    expect(lines).toEqual([]);
  });
});
