import { describe, expect, it } from "vitest";
import { hashing } from "../support/fake-engine.ts";
import {
  ask,
  assistant,
  collect,
  history,
  localChat,
  long,
  says,
  system,
  user,
} from "../support/fake-engine-chat.ts";

describe("sessions", () => {
  it("do not change when another conversation begins with the same system prompt", async () => {
    const { chat } = localChat(hashing(256));
    const a = [...history, assistant(long("f")), user("a")];
    const first = await ask(chat, { messages: a, maxTokens: 4 });
    const other = await ask(chat, { messages: [system, user("something else entirely")], maxTokens: 4 });
    expect(other.cacheUsage.session).not.toBe(first.cacheUsage.session);
    expect(other.cacheUsage.kept).toBeGreaterThan(40);
    expect(other.cacheUsage.reason).toContain(`with session ${first.cacheUsage.session}.`);
    const again = await ask(chat, { messages: a, maxTokens: 4 });
    expect(again.cacheUsage).toMatchObject({ session: first.cacheUsage.session, computed: 1 });
  });

  it("with a name serve only requests that name them; others share their exact cells by a fork", async () => {
    const { chat } = localChat(says("one", "two", "three"));
    const messages = [system, user(long("a"))];
    await ask(chat, { messages, session: "mine" });
    const anonymous = await ask(chat, { messages: [...messages, assistant("one"), user("b")] });
    expect(anonymous.cacheUsage.session).toMatch(/^anon-/);
    expect(anonymous.cacheUsage.kept).toBeGreaterThan(100);
    const named = await ask(chat, { messages: [...messages, assistant("one"), user("c")], session: "mine" });
    expect(named.cacheUsage.session).toBe("mine");
    expect(chat.list().map(({ id }) => id)).toContain("mine");
  });

  it("never share cells beyond the exact length with another session", async () => {
    const { chat } = localChat(says("one", "two", "three"));
    const old = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    await ask(chat, { messages: old, session: "mine" });
    const edited = [system, user("Summary."), ...old.slice(2)];
    const mine = await ask(chat, { messages: edited, session: "mine" });
    expect(mine.cacheUsage.stale).toBeGreaterThan(200);
    const other = await ask(chat, { messages: edited });
    expect(other.cacheUsage.stale).toBe(0);
    expect(chat.inspect(other.cacheUsage.session).stale).toEqual([]);
  });

  it("that are busy are forked, and both answers equal those of separate runs", async () => {
    const model = hashing(256);
    const { chat } = localChat(model);
    const messages = [system, user(long("a"))];
    const alone = await ask(localChat(model).chat, { messages: [...messages, user("b")], maxTokens: 20 });
    await ask(chat, { messages, session: "s", maxTokens: 3 });
    const slow = chat.chat({ messages: [...messages, user("c")], session: "s", maxTokens: 40 });
    await slow.next();
    await slow.next();
    const other = await ask(chat, { messages: [...messages, user("b")], session: "s", maxTokens: 20 });
    expect(other.answer).toBe(alone.answer);
    expect(other.cacheUsage.session).not.toBe("s");
    expect(other.cacheUsage.kept).toBeGreaterThan(100);
    const rest = await collect(slow);
    expect(rest.at(-1)).toMatchObject({
      type: "answer-finished",
      completionTokens: 40,
      cacheUsage: { session: "s" },
    });
  });

  it("are evicted, least recently used first, when there are more than the limit", async () => {
    const { chat, engine } = localChat(says("x"), { sessionsMax: 2 });
    for (const session of ["a", "b"]) await ask(chat, { messages: [user(session)], session });
    await ask(chat, { messages: [user("a")], session: "a" });
    await ask(chat, { messages: [user("c")], session: "c" });
    expect(chat.list().map(({ id }) => id)).toEqual(["a", "c"]);
    expect(engine.sequences.size).toBe(2);
  });

  it("can be deleted, also while busy, and only if they exist", async () => {
    const { chat, engine } = localChat(hashing(256));
    expect(() => chat.delete("s")).toThrow(expect.objectContaining({ code: "SESSION_NOT_FOUND" }));
    await ask(chat, { messages: [user("a")], session: "s", maxTokens: 2 });
    chat.delete("s");
    expect(engine.sequences.size).toBe(0);
    const events = chat.chat({ messages: [user("a")], session: "s" });
    await events.next();
    await events.next();
    chat.delete("s");
    await expect(collect(events)).rejects.toMatchObject({ code: "CANCELLED" });
    expect(engine.sequences.size).toBe(0);
    expect(chat.list()).toEqual([]);
  });
});
