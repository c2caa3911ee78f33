import { describe, expect, it } from "vitest";
import { hashing } from "../support/fake-engine.ts";
import {
  ask,
  assistant,
  closedGate,
  collect,
  localChat,
  long,
  summary,
  system,
  user,
} from "../support/fake-engine-chat.ts";

const houseRules = {
  ...system,
  content: Array.from({ length: 12 }, (_, at) => long(`rule ${at}`)).join("\n"),
};

describe("exact cells", () => {
  it("of a long system prompt are held once by ten sessions, named or not", async () => {
    const { chat, engine } = localChat(hashing(256), { sessionsMax: 20, context: 32_768 });
    const { length } = chat.applyTemplate([houseRules], [], { addGenerationPrompt: false }).tokens;
    expect(length).toBeGreaterThan(3000);
    for (let agent = 0; agent < 10; agent++) {
      const session = agent % 2 ? { session: `agent-${agent}` } : {};
      // Long enough that no anonymous request takes over another session.
      const messages = [houseRules, user(`${long(`task ${agent}`)} ${long(`and ${agent}`)}`)];
      const { cacheUsage } = await ask(chat, { messages, maxTokens: 3, ...session });
      if (agent > 0) expect(cacheUsage.kept).toBeGreaterThanOrEqual(length);
    }
    expect(chat.list()).toHaveLength(10);
    expect(engine.capacity - engine.tokensFree).toBeLessThan(length + 10 * 800);
    expect(engine.tokensComputed).toBeLessThan(length + 10 * 800);
  });

  it("are computed once for ten concurrent requests", async () => {
    const { chat, engine } = localChat(hashing(256), { sessionsMax: 20, context: 32_768 });
    engine.stepTokens = 2048;
    const { length } = chat.applyTemplate([houseRules], [], { addGenerationPrompt: false }).tokens;
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, agent) =>
        ask(chat, { messages: [houseRules, user(long(`task ${agent}`))], maxTokens: 3 }),
      ),
    );
    expect(answers.filter(({ cacheUsage }) => cacheUsage.kept >= length)).toHaveLength(9);
    expect(engine.tokensComputed).toBeLessThan(length + 10 * 600);
  });

  it("are no longer awaited when the computing or the waiting client aborts", async () => {
    const { chat, engine } = localChat(hashing(256), { context: 32_768 });
    const gate = closedGate(engine);
    const first = new AbortController();
    const leaving = collect(
      chat.chat({ messages: [houseRules, user("a")], maxTokens: 3, signal: first.signal }),
    );
    const second = new AbortController();
    const impatient = collect(
      chat.chat({ messages: [houseRules, user("b")], maxTokens: 3, signal: second.signal }),
    );
    const patient = collect(chat.chat({ messages: [houseRules, user("c")], maxTokens: 3 }));
    second.abort();
    await expect(impatient).rejects.toMatchObject({ code: "CANCELLED" });
    first.abort();
    gate.open();
    await expect(leaving).rejects.toMatchObject({ code: "CANCELLED" });
    expect(summary(await patient).completionTokens).toBe(3);
    expect(chat.list().every(({ busy }) => !busy)).toBe(true);
  });

  it("are shared from a busy session as far as they are computed", async () => {
    const { chat } = localChat(hashing(256));
    const messages = [system, user(long("a")), user(long("b"))];
    const slow = chat.chat({ messages, maxTokens: 500, session: "s" });
    await slow.next();
    await slow.next();
    const other = await ask(chat, { messages: [...messages.slice(0, 2), user("z")], maxTokens: 2 });
    expect(other.cacheUsage.kept).toBeGreaterThan(200);
    expect(other.cacheUsage.reason).toContain("with session s.");
    await slow.return();
  });

  it("are never those of another tenant, and never approximate ones", async () => {
    const { chat } = localChat(hashing(256));
    const messages = [system, user(long("a")), assistant(long("b")), user("c")];
    await ask(chat, { messages, session: "s", tenant: "alice", maxTokens: 2 });
    const edited = [system, user("Told."), ...messages.slice(2)];
    await ask(chat, { messages: edited, session: "s", tenant: "alice", maxTokens: 2 });
    const bob = await ask(chat, { messages, tenant: "bob", maxTokens: 2 });
    const anonymous = await ask(chat, { messages, maxTokens: 2 });
    for (const { cacheUsage } of [bob, anonymous])
      expect(cacheUsage).toMatchObject({ kept: 0, relocated: 0 });
    const alice = await ask(chat, { messages: edited, tenant: "alice", maxTokens: 2 });
    expect(alice.cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
  });

  it("of a system prompt stay cached when their session is evicted", async () => {
    const { chat, engine } = localChat(hashing(256), { sessionsMax: 1, capacity: 3000 });
    const rules = { ...system, content: [0, 1, 2].map((at) => long(`rule ${at}`)).join("\n") };
    const { length } = chat.applyTemplate([rules], [], { addGenerationPrompt: false }).tokens;
    await ask(chat, { messages: [rules, user("a")], session: "a", maxTokens: 2 });
    await ask(chat, { messages: [user("b")], session: "b", maxTokens: 2 });
    expect(chat.list().map(({ id }) => id)).toEqual(["b"]);
    const { cacheUsage } = await ask(chat, { messages: [rules, user("c")], session: "c", maxTokens: 2 });
    expect(cacheUsage.kept).toBeGreaterThanOrEqual(length);
    expect(cacheUsage.reason).toContain("an earlier conversation");
    // A prompt may need the whole pool.
    const longest = await ask(chat, {
      messages: [user(long("x").repeat(18).slice(0, 2800))],
      session: "x",
      maxTokens: 2,
    });
    expect(longest.promptTokens).toBeGreaterThan(2800);
    expect(engine.tokensFree).toBeLessThan(200);
  });
});

describe("sessions of another tenant", () => {
  it("are not listed, found or deleted, and do not occupy a name", async () => {
    const { chat } = localChat(hashing(256));
    const messages = [system, user(long("a"))];
    await ask(chat, { messages, session: "main", tenant: "alice", maxTokens: 2 });
    expect(chat.list()).toEqual([]);
    expect(chat.list("bob")).toEqual([]);
    expect(chat.list("alice").map(({ id }) => id)).toEqual(["main"]);
    const missing = expect.objectContaining({ code: "SESSION_NOT_FOUND" });
    expect(() => chat.inspect("main", "bob")).toThrow(missing);
    expect(() => chat.delete("main", "bob")).toThrow(missing);
    const bob = await ask(chat, { messages, session: "main", tenant: "bob", maxTokens: 2 });
    expect(bob.cacheUsage).toMatchObject({ session: "main", kept: 0 });
    chat.delete("main", "alice");
    expect(chat.list("bob")).toHaveLength(1);
    expect(chat.stats()).toMatchObject({ sessions: 1, named: 1, busy: 0 });
  });
});
