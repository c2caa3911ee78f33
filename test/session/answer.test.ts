import { describe, expect, it } from "vitest";
import { type FakeEngine, hashing } from "../support/fake-engine.ts";
import {
  ask,
  assistant,
  closedGate,
  collect,
  expectCells,
  localChat,
  long,
  says,
  system,
  user,
} from "../support/fake-engine-chat.ts";

describe("an answer", () => {
  it("emits prompt-planned, deltas and answer-finished, and ends before a stop string", async () => {
    const { chat } = localChat(says("well, the end is here"));
    const { answer, reason } = await ask(chat, { messages: [user("x")], stop: ["end", "zzz"] });
    expect(answer).toBe("well, the ");
    expect(reason).toBe("stop");
  });

  it("caches the ids of an answer up to its stop string, and the session stays consistent", async () => {
    const { chat, engine } = localChat(says("well, the end is here", "fine"));
    const first = await ask(chat, { messages: [user("x")], stop: ["end"] });
    const second = await ask(chat, { messages: [user("x"), assistant("well, the "), user("y")] });
    expect(second.cacheUsage.kept).toBe(first.promptTokens + "well, the ".length);
    const info = chat.list()[0]!;
    expect([...engine.sequences][0]!.length).toBe(info.tokens);
  });

  it("ends with length at its limit, and a limit beyond the window is clamped", async () => {
    const { chat } = localChat(hashing(256), { context: 60 });
    const short = await ask(chat, { messages: [user("x")], maxTokens: 5 });
    expect(short).toMatchObject({ reason: "length", completionTokens: 5 });
    const full = await ask(chat, { messages: [user("x")], maxTokens: 100_000 });
    expect(full.promptTokens + full.completionTokens).toBe(60);
  });

  it("carries logprobs with exact bytes, each with its own text", async () => {
    const { chat } = localChat(says("a🫠, the end"));
    const { deltas, answer } = await ask(chat, { messages: [user("x")], topLogprobs: 1, stop: ["end"] });
    expect(answer).toBe("a🫠, the ");
    const logprobs = deltas.flatMap((delta) => delta.logprobs ?? []);
    expect(Buffer.from(logprobs.flatMap(({ bytes }) => bytes)).toString()).toBe(answer);
    expect(logprobs[0]).toEqual({
      token: "a",
      bytes: [97],
      logprob: -0.5,
      top: [{ token: "a", bytes: [97], logprob: -0.5 }],
    });
  });

  it("checks its session in with all computed cells when the reader stops", async () => {
    const { chat, engine } = localChat(hashing(256));
    const messages = [system, user(long("a"))];
    for await (const event of chat.chat({ messages, session: "s" })) {
      if (event.type === "text-delta" && event.text !== "") break;
    }
    const [sequence] = [...engine.sequences];
    expect(chat.list()[0]).toMatchObject({ busy: false, tokens: sequence!.length });
    const next = await ask(chat, { messages: [...messages, user("b")], session: "s", maxTokens: 3 });
    expect(next.cacheUsage.kept).toBeGreaterThan(100);
  });

  it("keeps the computed cells when the client aborts during the prompt", async () => {
    const { chat, engine } = localChat(hashing(256));
    engine.stepTokens = 16;
    const abort = new AbortController();
    const messages = [system, user(long("a"))];
    const events = collect(chat.chat({ messages, session: "s", signal: abort.signal }));
    for (let step = 0; step < 4; step++) await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    await expect(events).rejects.toMatchObject({ code: "CANCELLED" });
    const [sequence] = [...engine.sequences];
    expect(sequence!.length).toBeGreaterThan(16);
    expect(chat.list()[0]).toMatchObject({ busy: false, tokens: sequence!.length });
    const filled = sequence!.length;
    const again = await ask(chat, { messages, session: "s", maxTokens: 3 });
    expect(again.cacheUsage.kept).toBe(filled);
  });

  it("leaves the old cells when aborted before its edit is applied, and the next turn is right", async () => {
    const { chat, engine } = localChat(hashing(256));
    const old = [system, user(long("a")), assistant(long("b"))];
    await ask(chat, { messages: old, session: "s", maxTokens: 1 });
    const abort = new AbortController();
    const gate = closedGate(engine);
    const changed = [system, user(long("c")), assistant(long("b"))];
    const events = collect(chat.chat({ messages: changed, session: "s", signal: abort.signal }));
    await new Promise((resolve) => setImmediate(resolve));
    abort.abort();
    gate.open();
    await expect(events).rejects.toMatchObject({ code: "CANCELLED" });
    const { cacheUsage } = await ask(chat, { messages: changed, session: "s", maxTokens: 1 });
    expect(cacheUsage.kept).toBeGreaterThan(40);
    expectCells(chat, engine, changed, []);
  });

  it("shares only cells that its edit does not touch until the edit is applied", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: [system, user(long("a")), user(long("b"))], session: "s", maxTokens: 1 });
    const gate = closedGate(engine);
    const mine = ask(chat, {
      messages: [system, user(long("c")), user(long("b"))],
      session: "s",
      maxTokens: 1,
    });
    const others = [system, user(long("c")), user("x")];
    const other = ask(chat, { messages: others, maxTokens: 1 });
    gate.open();
    await mine;
    expect((await other).cacheUsage.kept).toBeGreaterThan(40);
    expectCells(chat, engine, others, []);
  });

  it("may run ahead of a slow reader, and the session still knows every cell", async () => {
    const { chat, engine } = localChat(hashing(256));
    const messages = [system, user("a")];
    for await (const event of chat.chat({ messages, session: "s", maxTokens: 40 })) {
      if (event.type === "prompt-planned") continue;
      for (let step = 0; step < 10; step++) await new Promise((resolve) => setImmediate(resolve));
      break;
    }
    const [sequence] = [...engine.sequences];
    expect(sequence!.length).toBeGreaterThan(chat.applyTemplate(messages).tokens.length + 5);
    expect(chat.list()).toMatchObject([{ id: "s", busy: false, tokens: sequence!.length }]);
  });

  it("refuses a request that cannot be served before any event and leaves no session behind", async () => {
    const { chat, engine } = localChat(says("x"), { context: 100, capacity: 80 });
    await expect(ask(chat, { messages: [user("y".repeat(200))], maxTokens: 7 })).rejects.toMatchObject({
      code: "CONTEXT_LENGTH_EXCEEDED",
      detail: expect.stringMatching(
        /^This model's maximum context length is 100 tokens\. However, you requested 2\d\d tokens \(2\d\d in the messages, 7 in the completion\)\.$/,
      ),
    });
    await expect(ask(chat, { messages: [user("y".repeat(50))] })).rejects.toMatchObject({
      code: "CACHE_TOO_SMALL",
    });
    const gone = AbortSignal.abort();
    await expect(ask(chat, { messages: [user("y")], signal: gone })).rejects.toMatchObject({
      code: "CANCELLED",
    });
    expect(engine.jobs).toHaveLength(0);
    expect(chat.list()).toEqual([]);
  });

  it("rejects when the engine fails, and the conversation continues afterwards", async () => {
    const { chat, engine } = localChat(hashing(256));
    const messages = [system, user(long("a"))];
    await ask(chat, { messages, session: "s", maxTokens: 3 });
    const events = chat.chat({ messages: [...messages, user("b")], session: "s", maxTokens: 50 });
    await events.next();
    await events.next();
    engine.failure = new Error("The step failed.");
    await expect(collect(events)).rejects.toThrow("The step failed.");
    engine.failure = undefined;
    const next = await ask(chat, { messages: [...messages, user("b")], session: "s", maxTokens: 4 });
    expect(next.cacheUsage.kept).toBeGreaterThan(100);
    expectCells(chat, engine, [...messages, user("b")], engineTokens(engine, 3));
  });
});

function engineTokens(engine: FakeEngine, count: number): number[] {
  return [...engine.sequences].at(-1)!.all.slice(-count);
}
