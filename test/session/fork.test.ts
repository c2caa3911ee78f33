import { describe, expect, it } from "vitest";
import { hashing } from "../support/fake-engine.ts";
import {
  ask,
  closedGate,
  collect,
  compacted,
  history,
  localChat,
  summary,
  user,
} from "../support/fake-engine-chat.ts";

const question = user("Summarize the above.");

describe("a request with fork", () => {
  it("computes only its last message, and does not change the named session", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    const before = { map: chat.inspect("s"), list: chat.list() };
    const computed = engine.tokensComputed;
    // Up to a message in the middle, as a compressor asks.
    const { cacheUsage } = await ask(chat, {
      messages: [...history.slice(0, 4), question],
      session: "s",
      fork: true,
      maxTokens: 4,
    });
    expect(cacheUsage.session).toMatch(/^anon-/);
    expect(cacheUsage.reason).toMatch(/^Shares \d+ tokens with session s\./);
    expect(cacheUsage.relocated).toBe(0);
    const through = chat.applyTemplate(history.slice(0, 4), [], { addGenerationPrompt: false }).tokens.length;
    expect(cacheUsage.kept).toBeGreaterThanOrEqual(through);
    expect(engine.tokensComputed - computed).toBe(cacheUsage.computed + 3);
    expect({ map: chat.inspect("s"), list: chat.list() }).toEqual(before);
    expect(engine.sequences.size).toBe(1);
  });

  it("shares approximate cells of the session too", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    const edit = await ask(chat, { messages: compacted, session: "s", maxTokens: 4 });
    expect(edit.cacheUsage.stale).toBeGreaterThan(200);
    const request = {
      messages: [...compacted.slice(0, 4), question],
      session: "s",
      fork: true,
      maxTokens: 4,
    };
    const { cacheUsage } = await ask(chat, request);
    expect(cacheUsage.computed).toBeLessThan(60);
    expect(cacheUsage.stale).toBeGreaterThan(100);
    const exact = await ask(chat, { ...request, reuse: "prefix" });
    expect(exact.cacheUsage.stale).toBe(0);
    const cold = await ask(chat, { ...request, reuse: "none" });
    expect(cold.cacheUsage.kept).toBe(0);
    expect(chat.list().map(({ id }) => id)).toEqual(["s"]);
  });

  it("changes neither an anonymous conversation nor the number of sessions", async () => {
    const { chat } = localChat(hashing(256), { sessionsMax: 1 });
    const first = await ask(chat, { messages: history, maxTokens: 4 });
    const { cacheUsage } = await ask(chat, {
      messages: [...history.slice(0, 4), question],
      fork: true,
      maxTokens: 4,
    });
    expect(cacheUsage.computed).toBeLessThan(60);
    expect(chat.list().map(({ id }) => id)).toEqual([first.cacheUsage.session]);
    expect(chat.stats().evictions).toBe(0);
  });

  it("is answered while the session is busy, from its exact cells", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    const gate = closedGate(engine);
    const work = collect(chat.chat({ messages: [...history, user("go on")], session: "s", maxTokens: 4 }));
    const side = collect(
      chat.chat({ messages: [...history, question], session: "s", fork: true, maxTokens: 4 }),
    );
    gate.open();
    const answered = summary(await side);
    expect(answered.cacheUsage.computed).toBeLessThan(60);
    expect(summary(await work).cacheUsage.session).toBe("s");
    expect(chat.list()).toHaveLength(1);
  });

  it("creates no session for a name that is not resident, and shares no cells of another tenant", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", tenant: "one", maxTokens: 4 });
    const request = { messages: [...history, question], session: "s", fork: true, maxTokens: 4 };
    const { cacheUsage } = await ask(chat, { ...request, tenant: "two" });
    expect(cacheUsage).toMatchObject({ kept: 0, relocated: 0 });
    expect(chat.list("two")).toEqual([]);
    expect(chat.list("one")).toHaveLength(1);
  });

  it("is released after an abort too, and cannot be combined with forget", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    const events = chat.chat({ messages: [...history, question], session: "s", fork: true });
    await events.next();
    expect(chat.list()).toHaveLength(2);
    await events.return();
    expect(chat.list()).toHaveLength(1);
    expect(engine.sequences.size).toBe(1);
    const both = ask(chat, { messages: history, session: "s", fork: true, forget: true });
    await expect(both).rejects.toMatchObject({ code: "BAD_REQUEST", param: "pocket.fork" });
  });
});
