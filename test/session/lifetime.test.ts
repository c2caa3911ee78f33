import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { hashing } from "../support/fake-engine.ts";
import { ask, assistant, collect, localChat, long, system, user } from "../support/fake-engine-chat.ts";

describe("the lifetime of a session", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["Date", "setInterval", "clearInterval"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("ends by a timer after the time to live, but not while it is busy", async () => {
    const { chat, engine } = localChat(hashing(256), { ttlSeconds: 10 });
    await ask(chat, { messages: [user("a")], session: "idle", maxTokens: 2 });
    const slow = chat.chat({ messages: [user(long("b"))], session: "busy", maxTokens: 2000 });
    await slow.next();
    vi.advanceTimersByTime(9_000);
    expect(chat.stats()).toMatchObject({ sessions: 2, busy: 1 });
    vi.advanceTimersByTime(11_000);
    expect(chat.stats()).toMatchObject({ sessions: 1, busy: 1, evictions: 0 });
    await slow.return();
    const again = await ask(chat, { messages: [user("a")], session: "idle", maxTokens: 2 });
    // The other session still holds the default system prompt.
    expect(again.cacheUsage.kept).toBeLessThan(30);
    expect(again.cacheUsage.reason).toMatch(/^Session idle had outlived its time\. Shares/);
    await chat.close();
    expect(engine.sequences.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("also ends when sessions are listed before the timer fires", async () => {
    const { chat } = localChat(hashing(256), { ttlSeconds: 3600 });
    await ask(chat, { messages: [user("a")], session: "s", maxTokens: 2 });
    vi.setSystemTime(Date.now() + 3_600_001);
    expect(chat.list()).toEqual([]);
    await chat.close();
  });

  it("ends once: the second of two concurrent deletions finds no session", async () => {
    const { chat, engine } = localChat(hashing(256));
    const events = chat.chat({ messages: [user(long("a"))], session: "s", maxTokens: 2000 });
    await events.next();
    await events.next();
    chat.delete("s");
    expect(() => chat.delete("s")).toThrow(expect.objectContaining({ code: "SESSION_NOT_FOUND" }));
    await expect(collect(events)).rejects.toMatchObject({ code: "CANCELLED" });
    expect(engine.sequences.size).toBe(0);
    expect(engine.busy).toBe(0);
    const { cacheUsage } = await ask(chat, { messages: [user(long("a"))], session: "s", maxTokens: 2 });
    expect(cacheUsage.reason).toBe("Session s was deleted. Nothing was resident.");
  });

  it("is reported as evicted in the reason of the next request", async () => {
    const { chat } = localChat(hashing(256), { capacity: 700 });
    const letters = (letter: string) => user(letter.repeat(300));
    for (const name of ["a", "b", "c"]) {
      await ask(chat, { messages: [letters(name)], session: name, maxTokens: 2 });
    }
    const { cacheUsage } = await ask(chat, { messages: [letters("a")], session: "a", maxTokens: 2 });
    expect(cacheUsage.reason).toMatch(/^Session a had gone to make room\./);
    expect(chat.stats().evictions).toBeGreaterThanOrEqual(2);
  });
});

describe("session statistics", () => {
  it("add up over requests, and a map shows which cells moved", async () => {
    const { chat } = localChat(hashing(256));
    const messages = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    const first = await ask(chat, { messages, session: "s", maxTokens: 3 });
    const second = await ask(chat, {
      messages: [system, user("Told."), ...messages.slice(2)],
      session: "s",
      maxTokens: 3,
    });
    const { keptTokens, relocatedTokens, computedTokens, staleTokens, undoable } = chat.stats();
    expect(keptTokens).toBe(second.cacheUsage.kept);
    expect(relocatedTokens).toBe(second.cacheUsage.relocated);
    expect(computedTokens).toBe(first.promptTokens + second.cacheUsage.computed);
    expect(undoable).toBe(1);
    const map = chat.inspect("s");
    // Two tokens of the answer have cells.
    expect(map.tokens).toBe(second.promptTokens + 2);
    expect(map.stale).toEqual([{ start: map.tokens - staleTokens, end: map.tokens }]);
    const moved = map.shifts.find((range) => range.shift !== 0);
    expect(moved!.end - moved!.start).toBe(second.cacheUsage.relocated);
    const shift = second.promptTokens - first.promptTokens;
    expect(moved!.shift).toBe(shift);
    expect(map.shifts.map(({ shift: by }) => by)).toEqual([0, shift, 0]);
    expect(map.spans.map(({ role }) => role)).toEqual(["system", "user", "assistant", "user", "assistant"]);
    expect(map.spans[0]!.start).toBe(0);
    for (const [index, { start }] of map.spans.entries()) {
      if (index > 0) expect(start).toBe(map.spans[index - 1]!.end);
    }
    expect(map.spans.at(-1)!.end).toBe(map.tokens);
  });
});
