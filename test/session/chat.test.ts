import { describe, expect, it } from "vitest";
import type { ChatEvent, ChatRequest, Message } from "../../src/context/chat.ts";
import { LocalChat } from "../../src/session/chat.ts";
import { smallText } from "../text/small.ts";
import { FakeEngine, hashing, type Model, scripted } from "./fake-engine.ts";

const text = smallText();
const { tokenizer } = text;
const endOfTurn = tokenizer.idOf("<|im_end|>")!;
const opening = Array.from(tokenizer.encodeTemplate("<|im_start|>assistant\n"));
const isTurn = (tokens: readonly number[]) =>
  opening.every((id, place) => tokens.at(place - opening.length) === id);

const sampling = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
};

/** One character per token: never the ids that encoding the text again would give. */
function spell(answer: string): number[] {
  return Array.from(Buffer.from(answer)).flatMap((byte) => Array.from(bytewise(byte)));
}

function bytewise(byte: number): number[] {
  for (let id = 0; id < 256; id++) if (tokenizer.bytesOf(id)[0] === byte) return [id];
  throw new Error(`No token for byte ${byte}.`);
}

function set(
  model: Model,
  options: { readonly capacity?: number; readonly context?: number; readonly sessionsMax?: number } = {},
) {
  const engine = new FakeEngine(model, options);
  const chat = new LocalChat({ engine, ...text, sessionsMax: options.sessionsMax ?? 8, sampling });
  return { engine, chat };
}

const says = (...answers: string[]) => scripted(answers.map(spell), endOfTurn, isTurn);

async function ask(chat: LocalChat, request: ChatRequest) {
  return summary(await collect(chat.chat(request)));
}

async function collect(events: AsyncIterable<ChatEvent>): Promise<ChatEvent[]> {
  const seen: ChatEvent[] = [];
  for await (const event of events) seen.push(event);
  return seen;
}

function summary(events: readonly ChatEvent[]) {
  const planned = events[0] as ChatEvent & { type: "prompt-planned" };
  const finished = events.at(-1) as ChatEvent & { type: "answer-finished" };
  expect([planned.type, finished.type]).toEqual(["prompt-planned", "answer-finished"]);
  const deltas = events.slice(1, -1) as (ChatEvent & { type: "text-delta" })[];
  for (const delta of deltas) expect(delta.type).toBe("text-delta");
  const { bill, promptTokens } = finished;
  expect(bill.kept + bill.relocated + bill.computed).toBe(promptTokens);
  return { ...finished, deltas, planned, answer: deltas.map((delta) => delta.text).join("") };
}

const system: Message = { role: "system", content: "You keep the house and tell the truth about it." };
const user = (content: string): Message => ({ role: "user", content });
const assistant = (content: string): Message => ({ role: "assistant", content });
const long = (name: string) =>
  `${name}: ${Array.from({ length: 30 }, (_, at) => `${name} ${at}`).join(", ")}.`;

/** The cells are the rendered prompt and the answer's tokens but for the last one, which never gets a cell. */
function expectCells(
  chat: LocalChat,
  engine: FakeEngine,
  messages: readonly Message[],
  fed: readonly number[],
) {
  const expected = [...chat.applyTemplate(messages).tokens, ...fed];
  expect(Array.from(engine.sequences, ({ tokens }) => tokens)).toContainEqual(expected);
}

describe("a conversation", () => {
  it("appends: the second turn computes the new message and the end of the turn before it", async () => {
    const { chat, engine } = set(says("the and you 🫠", "ok"));
    const first = await ask(chat, { messages: [system, user("hello")] });
    expect(first).toMatchObject({ answer: "the and you 🫠", reason: "stop", completionTokens: 17 });
    expect(first.bill.reason).toBe("Nothing was resident.");
    const messages = [system, user("hello"), assistant("the and you 🫠"), user("more")];
    const second = await ask(chat, { messages });
    const added = tokenizer.encodeTemplate(
      "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(second.bill).toMatchObject({
      session: first.bill.session,
      kept: first.promptTokens + 16,
      relocated: 0,
      computed: added.length,
      stale: 0,
    });
    expectCells(chat, engine, messages, spell("ok"));
  });

  it("is found by what survives when its middle is edited, without a name", async () => {
    const { chat } = set(says("one", "two", "three", "four"));
    const old = [
      system,
      user(long("a")),
      assistant(long("b")),
      user(long("c")),
      assistant(long("d")),
      user("go"),
    ];
    const first = await ask(chat, { messages: old });
    const compacted = [system, user("Summary of a and b."), ...old.slice(3), assistant("one"), user("next")];
    const second = await ask(chat, { messages: compacted });
    expect(second.bill.session).toBe(first.bill.session);
    expect(second.bill.relocated).toBeGreaterThan(250);
    expect(second.bill.computed).toBeLessThan(60);
    expect(second.bill.stale).toBe(second.bill.relocated);
    expect(chat.list()).toHaveLength(1);
    // Even when the summary takes the very first place.
    const folded = [
      { ...system, content: "All is told." },
      ...old.slice(3),
      assistant("one"),
      user("next"),
      assistant("two"),
      user("z"),
    ];
    const third = await ask(chat, { messages: folded });
    expect(third.bill.session).toBe(first.bill.session);
    expect(third.bill.relocated).toBeGreaterThan(250);
  });

  it("computes everything behind the edit under prefix reuse, and leaves nothing stale", async () => {
    const { chat } = set(says("one", "two"));
    const old = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    await ask(chat, { messages: old });
    const { bill } = await ask(chat, {
      messages: [system, user("Summary."), ...old.slice(2)],
      reuse: "prefix",
    });
    expect(bill.relocated).toBe(0);
    expect(bill.stale).toBe(0);
    expect(bill.computed).toBeGreaterThan(200);
  });

  it("repairs surviving assistant messages when asked to", async () => {
    const { chat } = set(says("one", "two"));
    const old = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    await ask(chat, { messages: old, session: "s" });
    const { bill, planned } = await ask(chat, {
      messages: [system, user("Summary."), ...old.slice(2)],
      session: "s",
      repair: "assistant",
    });
    expect(bill.relocated).toBeGreaterThan(100);
    expect(bill.computed).toBeGreaterThan(150);
    expect(bill).toEqual(planned.bill);
  });
});

describe("sessions", () => {
  it("leave a long conversation alone when another one begins with the same system text", async () => {
    const { chat } = set(hashing(256));
    const a = [
      system,
      user(long("a")),
      assistant(long("b")),
      user(long("c")),
      assistant(long("d")),
      user(long("e")),
      assistant(long("f")),
      user("a"),
    ];
    const first = await ask(chat, { messages: a, maxTokens: 4 });
    const other = await ask(chat, { messages: [system, user("something else entirely")], maxTokens: 4 });
    expect(other.bill.session).not.toBe(first.bill.session);
    expect(other.bill.kept).toBeGreaterThan(40);
    expect(other.bill.reason).toContain(`with session ${first.bill.session}.`);
    const again = await ask(chat, { messages: a, maxTokens: 4 });
    expect(again.bill).toMatchObject({ session: first.bill.session, computed: 1 });
  });

  it("with a name serve only who names them; others share their exact cells by a fork", async () => {
    const { chat } = set(says("one", "two", "three"));
    const messages = [system, user(long("a"))];
    await ask(chat, { messages, session: "mine" });
    const anonymous = await ask(chat, { messages: [...messages, assistant("one"), user("b")] });
    expect(anonymous.bill.session).toMatch(/^anon-/);
    expect(anonymous.bill.kept).toBeGreaterThan(100);
    const named = await ask(chat, { messages: [...messages, assistant("one"), user("c")], session: "mine" });
    expect(named.bill.session).toBe("mine");
    expect(chat.list().map(({ id }) => id)).toContain("mine");
  });

  it("never share cells beyond the exact length with somebody else", async () => {
    const { chat, engine } = set(says("one", "two", "three"));
    const old = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    await ask(chat, { messages: old, session: "mine" });
    const edited = [system, user("Summary."), ...old.slice(2)];
    const mine = await ask(chat, { messages: edited, session: "mine" });
    expect(mine.bill.stale).toBeGreaterThan(200);
    const other = await ask(chat, { messages: edited });
    expect(other.bill.stale).toBe(0);
    const [, sequence] = [...engine.sequences];
    expect(sequence!.exactLength).toBe(sequence!.length);
  });

  it("that are busy are forked, and both answers are those of a lone run", async () => {
    const model = hashing(256);
    const { chat } = set(model);
    const messages = [system, user(long("a"))];
    const alone = await ask(set(model).chat, { messages: [...messages, user("b")], maxTokens: 20 });
    await ask(chat, { messages, session: "s", maxTokens: 3 });
    const slow = chat.chat({ messages: [...messages, user("c")], session: "s", maxTokens: 40 });
    await slow.next();
    await slow.next();
    const other = await ask(chat, { messages: [...messages, user("b")], session: "s", maxTokens: 20 });
    expect(other.answer).toBe(alone.answer);
    expect(other.bill.session).not.toBe("s");
    expect(other.bill.kept).toBeGreaterThan(100);
    const rest = await collect(slow);
    expect(rest.at(-1)).toMatchObject({
      type: "answer-finished",
      completionTokens: 40,
      bill: { session: "s" },
    });
  });

  it("go, least recently used first, when there are more than may be kept", async () => {
    const { chat, engine } = set(says("x"), { sessionsMax: 2 });
    for (const session of ["a", "b"]) await ask(chat, { messages: [user(session)], session });
    await ask(chat, { messages: [user("a")], session: "a" });
    await ask(chat, { messages: [user("c")], session: "c" });
    expect(chat.list().map(({ id }) => id)).toEqual(["a", "c"]);
    expect(engine.sequences.size).toBe(2);
  });

  it("can be deleted, also while they answer, and only if they exist", async () => {
    const { chat, engine } = set(hashing(256));
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

describe("an answer", () => {
  it("comes as planned, deltas, finished, and stops at a stop string without a character of it", async () => {
    const { chat } = set(says("well, the end is here"));
    const { answer, reason } = await ask(chat, { messages: [user("x")], stop: ["end", "zzz"] });
    expect(answer).toBe("well, the ");
    expect(reason).toBe("stop");
  });

  it("that a stop string cut is remembered as spoken up to the cut, and its session stays in step", async () => {
    const { chat, engine } = set(says("well, the end is here", "fine"));
    const first = await ask(chat, { messages: [user("x")], stop: ["end"] });
    const second = await ask(chat, { messages: [user("x"), assistant("well, the "), user("y")] });
    expect(second.bill.kept).toBe(first.promptTokens + "well, the ".length);
    const info = chat.list()[0]!;
    expect([...engine.sequences][0]!.length).toBe(info.tokens);
  });

  it("that reaches its limit ends with length, and a limit beyond the window is clamped", async () => {
    const { chat } = set(hashing(256), { context: 60 });
    const short = await ask(chat, { messages: [user("x")], maxTokens: 5 });
    expect(short).toMatchObject({ reason: "length", completionTokens: 5 });
    const full = await ask(chat, { messages: [user("x")], maxTokens: 100_000 });
    expect(full.promptTokens + full.completionTokens).toBe(60);
  });

  it("carries logprobs with exact bytes, each with the text it belongs to", async () => {
    const { chat } = set(says("a🫠, the end"));
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

  it("that is no longer read gives its session back with all that became cells", async () => {
    const { chat, engine } = set(hashing(256));
    const messages = [system, user(long("a"))];
    for await (const event of chat.chat({ messages, session: "s" })) {
      if (event.type === "text-delta" && event.text !== "") break;
    }
    const [sequence] = [...engine.sequences];
    expect(chat.list()[0]).toMatchObject({ busy: false, tokens: sequence!.length });
    const next = await ask(chat, { messages: [...messages, user("b")], session: "s", maxTokens: 3 });
    expect(next.bill.kept).toBeGreaterThan(100);
  });

  it("that the client aborts in the middle of the prompt keeps what was computed", async () => {
    const { chat, engine } = set(hashing(256));
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
    expect(again.bill.kept).toBe(filled);
  });

  it("refuses what cannot be served before any event and leaves no session behind", async () => {
    const { chat, engine } = set(says("x"), { context: 100, capacity: 80 });
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

  it("that the engine fails is an error, and the conversation goes on afterwards", async () => {
    const { chat, engine } = set(hashing(256));
    const messages = [system, user(long("a"))];
    await ask(chat, { messages, session: "s", maxTokens: 3 });
    const events = chat.chat({ messages: [...messages, user("b")], session: "s", maxTokens: 50 });
    await events.next();
    await events.next();
    engine.failure = new Error("The step failed.");
    await expect(collect(events)).rejects.toThrow("The step failed.");
    engine.failure = undefined;
    const next = await ask(chat, { messages: [...messages, user("b")], session: "s", maxTokens: 4 });
    expect(next.bill.kept).toBeGreaterThan(100);
    expectCells(chat, engine, [...messages, user("b")], engineTokens(engine, 3));
  });
});

function engineTokens(engine: FakeEngine, count: number): number[] {
  return [...engine.sequences].at(-1)!.tokens.slice(-count);
}

describe("a completion", () => {
  it("takes text or ids, and finds its cells again when the prompt has grown", async () => {
    const { chat } = set(hashing(256));
    const first = summary(await collect(chat.complete({ prompt: long("a"), maxTokens: 5 })));
    const ids = chat.tokenize(long("a"));
    const again = summary(await collect(chat.complete({ prompt: ids, maxTokens: 5 })));
    expect(again.answer).toBe(first.answer);
    expect(again.bill).toMatchObject({ kept: ids.length - 1, computed: 1 });
  });

  it("refuses an empty prompt and ids that do not exist, naming the field", async () => {
    const { chat } = set(hashing(256));
    await expect(collect(chat.complete({ prompt: "" }))).rejects.toMatchObject({ param: "prompt" });
    await expect(collect(chat.complete({ prompt: [1, 99_999] }))).rejects.toMatchObject({
      code: "BAD_REQUEST",
      param: "prompt.1",
    });
    expect(() => chat.detokenize([-1])).toThrow(expect.objectContaining({ param: "tokens.0" }));
  });

  it("tokenizes and detokenizes, control tokens included", () => {
    const { chat } = set(hashing(256));
    const ids = chat.tokenize("<|im_start|>the 🫠");
    expect(ids[0]).toBe(tokenizer.idOf("<|im_start|>"));
    expect(chat.detokenize(ids)).toBe("<|im_start|>the 🫠");
  });
});
