import { describe, expect, it } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import { hashing } from "../support/fake-engine.ts";
import { ask, assistant, history, localChat, long, system, user } from "../support/fake-engine-chat.ts";

const compacted = [system, user("Told: a, b and c."), ...history.slice(4)];

describe("undo", () => {
  it.each(["s", undefined])(
    "restores the cells from before a compaction, all exact (session %s)",
    async (name) => {
      const { chat, engine } = localChat(hashing(256));
      const session = name === undefined ? {} : { session: name };
      const first = await ask(chat, { messages: history, maxTokens: 4, ...session });
      const second = await ask(chat, { messages: compacted, maxTokens: 4, ...session });
      expect(second.cacheUsage.relocated).toBeGreaterThan(200);
      const computed = engine.tokensComputed;
      const back = [...history, user("And now?")];
      const third = await ask(chat, { messages: back, maxTokens: 4, ...session });
      expect(third.cacheUsage).toMatchObject({ session: first.cacheUsage.session, relocated: 0, stale: 0 });
      expect(third.cacheUsage.computed).toBeLessThanOrEqual(chat.tokenize("And now?").length + 32);
      expect(third.cacheUsage.reason).toContain("The cells from before the last edit came back.");
      // The counts equal what was computed: four tokens sampled, three of them fed back.
      expect(engine.tokensComputed - computed).toBe(third.cacheUsage.computed + 3);
      // The compacted version is now the previous one.
      const fourth = await ask(chat, { messages: [...compacted, user("x")], maxTokens: 4, ...session });
      expect(fourth.cacheUsage.computed).toBeLessThan(60);
    },
  );

  it("keeps previous versions that are evicted before any session", async () => {
    const { chat } = localChat(hashing(256), { capacity: 1700 });
    await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 4 });
    expect(chat.stats()).toMatchObject({ undoable: 1, evictions: 0 });
    await ask(chat, { messages: [user("z".repeat(700))], session: "t", maxTokens: 4 });
    expect(chat.stats()).toMatchObject({ sessions: 2, undoable: 0, evictions: 0 });
  });

  it("is possible for a limited number of sessions, the last ones edited", async () => {
    const { chat } = localChat(hashing(256), { undoMax: 2 });
    for (const session of ["a", "b", "c"]) {
      await ask(chat, { messages: history, session, maxTokens: 2 });
      await ask(chat, { messages: compacted, session, maxTokens: 2 });
    }
    expect(chat.stats().undoable).toBe(2);
    const undone = await ask(chat, { messages: [...history, user("x")], session: "c", maxTokens: 2 });
    expect(undone.cacheUsage.reason).toContain("came back");
  });

  it("stays possible after an answer is regenerated", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 200 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: [...history, user("x")], session: "s", maxTokens: 2 });
    expect(cacheUsage.reason).toContain("came back");
  });
});

describe("an agent's turns with changing trailers", () => {
  const start = [system, user("Find it.")];
  const turn = (name: string) => [assistant(`I read ${long(name)}`), user(long(`result ${name}`))];
  const trailer = (text: string) => user(`catalog ${text} `.repeat(8));
  const asked = (chat: ReturnType<typeof localChat>["chat"], ...messages: Message[]) =>
    ask(chat, { messages, session: "agent", maxTokens: 2, repair: "assistant" });

  it("a compaction edits the resident version, and its surviving answers are repaired", async () => {
    const { chat } = localChat(hashing(256));
    const [a, b, c] = ["a", "b", "c"].map(turn) as [Message[], Message[], Message[]];
    await asked(chat, ...start, trailer("one"));
    await asked(chat, ...start, ...a, trailer("two"));
    await asked(chat, ...start, ...a, ...b, trailer("three"));
    await asked(chat, ...start, ...a, ...b, ...c, trailer("four"));
    const { cacheUsage } = await asked(chat, ...start, user("Read a and b."), ...c, trailer("five"));
    expect(cacheUsage.reason).not.toContain("came back");
    expect(cacheUsage.reason).toContain("recomputed as repair");
    expect(cacheUsage.relocated).toBeGreaterThan(40);
  });

  it("cells that only the version exchanged by an undo holds are still found by an expand", async () => {
    const { chat } = localChat(hashing(256));
    const [a, b, c] = ["a", "b", "c"].map(turn) as [Message[], Message[], Message[]];
    await asked(chat, ...start, ...a, ...b, user("go on"));
    await asked(chat, ...start, user("Read a."), ...b, user("and then"));
    await asked(chat, ...start, user("Read a."), ...b, ...c, user("and now"));
    const back = await asked(chat, ...start, ...a, ...b, user("back to it"));
    expect(back.cacheUsage.reason).toContain("came back");
    const memory = user("In a stood nothing.");
    const edited = await asked(chat, ...start, memory, ...b, user("next"));
    expect(edited.cacheUsage.reason).not.toContain("came back");
    const { cacheUsage } = await asked(chat, ...start, memory, ...b, user("go on"), ...c, user("then"));
    expect(cacheUsage.reason).toContain("were adopted");
    expect(cacheUsage.relocated).toBeGreaterThan(80);
  });
});

describe("forget", () => {
  it("computes everything behind the edit and keeps neither removed cells nor cells that attended to them", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: compacted, session: "s", maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: compacted, session: "s", maxTokens: 2, forget: true });
    expect(cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
    expect(cacheUsage.kept).toBeLessThan(100);
    expect(chat.stats().undoable).toBe(0);
    expect(engine.sequences.size).toBe(1);
    const [sequence] = engine.sequences;
    expect(sequence!.exactLength).toBe(sequence!.length);
    const text = chat.detokenize(sequence!.all);
    expect(text).not.toContain("a 1, a 2");
  });

  it("frees the removed cells before the answer starts", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    const events = chat.chat({ messages: compacted, session: "s", maxTokens: 50, forget: true });
    await events.next();
    const held = Array.from(engine.sequences, ({ all }) => chat.detokenize(all)).join("");
    expect(held).not.toContain("a 1, a 2");
    await events.return();
  });

  it("finds an anonymous conversation and edits it in place", async () => {
    const { chat, engine } = localChat(hashing(256));
    const first = await ask(chat, { messages: history, maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: compacted, maxTokens: 2, forget: true });
    expect(cacheUsage.session).toBe(first.cacheUsage.session);
    expect(engine.sequences.size).toBe(1);
  });

  it("reports which tokens other sessions still hold", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: history, session: "t", maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: compacted, session: "s", maxTokens: 2, forget: true });
    expect(cacheUsage.reason).toMatch(/^\d+ of the tokens that go stay with session t, which shares them\./);
  });
});

describe("repair on a request", () => {
  it("recomputes survivors that an earlier edit left stale", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    const edit = await ask(chat, { messages: compacted, session: "s", maxTokens: 2 });
    expect(edit.cacheUsage.computed).toBeLessThan(60);
    const next = [...compacted, user("x")];
    const { cacheUsage } = await ask(chat, {
      messages: next,
      session: "s",
      maxTokens: 2,
      repair: "assistant",
    });
    const repaired = chat.tokenize(long("d")).length;
    expect(cacheUsage.computed).toBeGreaterThanOrEqual(repaired);
    expect(cacheUsage.computed).toBeLessThan(repaired + 60);
    expect(cacheUsage.reason).toMatch(/\d+ survivors were recomputed as repair\.$/);
    const again = await ask(chat, {
      messages: [...next, user("y")],
      session: "s",
      maxTokens: 2,
      repair: "assistant",
    });
    expect(again.cacheUsage.computed).toBeLessThan(60);
  });
});

describe("an edit that is cut short", () => {
  it("leaves the survivors behind the cut, and the next request reuses them", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    engine.stepTokens = 16;
    const summary = user(`Told: ${long("summary")}`);
    const edited = [system, summary, ...history.slice(4)];
    const abort = new AbortController();
    const events = chat.chat({ messages: edited, session: "s", maxTokens: 2, signal: abort.signal });
    const first = events.next();
    for (let step = 0; step < 4; step++) await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    await expect(first.then(() => events.next())).rejects.toMatchObject({ code: "CANCELLED" });
    const { cacheUsage } = await ask(chat, { messages: edited, session: "s", maxTokens: 2 });
    expect(cacheUsage.session).toBe("s");
    expect(cacheUsage.relocated).toBeGreaterThan(250);
    expect(cacheUsage.computed).toBeLessThan(chat.tokenize(long("summary")).length + 60);
  });
});
