// A pool that is too small for all clients, and the consistency of sessions when clients append, edit, abort and
// return in any order.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ChatEvent, Message, Repair, Reuse } from "../../src/chat/chat.ts";
import { greedy } from "../../src/engine/job.ts";
import { PocketError } from "../../src/errors.ts";
import { LocalChat, type LocalChatOptions } from "../../src/session/local-chat.ts";
import { FakeEngine, hashing } from "../support/fake-engine.ts";
import { smallText } from "../support/small-tokenizer.ts";

const text = smallText();

function set(capacity: number, sessionsMax = 8, more: Partial<LocalChatOptions> = {}) {
  const engine = new FakeEngine(hashing(256), { capacity });
  return { engine, chat: new LocalChat({ engine, ...text, sessionsMax, sampling: greedy, ...more }) };
}

const user = (content: string): Message => ({ role: "user", content });
const filler = (name: string, length: number) =>
  name.repeat(Math.ceil(length / name.length)).slice(0, length);

async function finish(events: AsyncIterable<ChatEvent>) {
  let last: ChatEvent | undefined;
  for await (const event of events) last = event;
  if (last?.type !== "answer-finished") throw new Error(`The last event was ${last?.type}.`);
  return last;
}

describe("a full pool", () => {
  it("evicts idle sessions before it refuses a request", async () => {
    const { chat, engine } = set(900);
    for (const name of ["a", "b", "c", "d"]) {
      await finish(chat.chat({ messages: [user(filler(name, 300))], session: name, maxTokens: 4 }));
    }
    const left = chat.list().map(({ id }) => id);
    expect(left).toContain("d");
    expect(left).not.toContain("a");
    expect(engine.tokensFree).toBeGreaterThanOrEqual(0);
  });

  it("makes a request wait for a busy session, and then serves it", async () => {
    const { chat } = set(600);
    const first = chat.chat({ messages: [user(filler("a", 300))], session: "a", maxTokens: 30 });
    await first.next();
    const second = finish(chat.chat({ messages: [user(filler("b", 300))], session: "b", maxTokens: 30 }));
    // Its checkout comes after its preparation but before any step of the other request.
    await new Promise<void>((resolve) => process.nextTick(resolve));
    expect(chat.list().map(({ id }) => id)).toContain("b");
    await finish(first);
    expect(await second).toMatchObject({ completionTokens: 30 });
    expect(chat.list().map(({ id }) => id)).toEqual(["b"]);
  });

  it("lets a waiting client abort", async () => {
    const { chat } = set(600);
    const first = chat.chat({ messages: [user(filler("a", 300))], session: "a", maxTokens: 2000 });
    await first.next();
    const abort = new AbortController();
    const second = finish(
      chat.chat({ messages: [user(filler("b", 300))], session: "b", signal: abort.signal }),
    );
    await new Promise((resolve) => setTimeout(resolve, 20));
    abort.abort();
    await expect(second).rejects.toMatchObject({ code: "CANCELLED" });
    await first.return();
    expect(chat.list().every(({ busy }) => !busy)).toBe(true);
  });

  it("restarts a session when an edit needs more pages than are free beside its own cells", async () => {
    const { chat } = set(400);
    await finish(chat.chat({ messages: [user(filler("a", 250))], session: "s", maxTokens: 4 }));
    const { cacheUsage } = await finish(
      chat.chat({ messages: [user(filler("b", 250))], session: "s", maxTokens: 4 }),
    );
    expect(cacheUsage).toMatchObject({ session: "s", kept: 0 });
    expect(cacheUsage.reason).toBe(
      "The pool had no room for an edit; the prompt was computed from the start.",
    );
  });

  it("does not stop a running answer while an idle session can be evicted", async () => {
    const { chat } = set(700);
    await finish(chat.chat({ messages: [user(filler("a", 200))], session: "idle", maxTokens: 4 }));
    const { completionTokens } = await finish(
      chat.chat({ messages: [user(filler("b", 100))], session: "s", maxTokens: 450 }),
    );
    expect(completionTokens).toBe(450);
    expect(chat.list().map(({ id }) => id)).toEqual(["s"]);
  });

  it("ends two answers that block each other with one error at most, and never hangs", async () => {
    const { chat } = set(500);
    const answers = await Promise.allSettled(
      ["a", "b"].map((name) =>
        finish(chat.chat({ messages: [user(filler(name, 100))], session: name, maxTokens: 300 })),
      ),
    );
    const served = answers.filter(({ status }) => status === "fulfilled");
    expect(served.length).toBeGreaterThanOrEqual(1);
    for (const answer of answers) {
      if (answer.status === "rejected") expect(answer.reason).toMatchObject({ code: "CACHE_FULL" });
    }
    expect(chat.list().every(({ busy }) => !busy)).toBe(true);
  });
});

interface Visit {
  readonly client: number;
  readonly edit: "append" | "fold" | "change" | "regenerate";
  readonly index: number;
  readonly named: boolean;
  readonly reuse: Reuse;
  readonly repair: Repair;
  readonly forget: boolean;
  readonly leaveAfter: number | undefined;
}

const visit: fc.Arbitrary<Visit> = fc.record({
  client: fc.nat(2),
  edit: fc.constantFrom("append", "append", "fold", "change", "regenerate"),
  index: fc.nat(20),
  named: fc.boolean(),
  reuse: fc.constantFrom<Reuse>("suffix", "suffix", "prefix", "none"),
  repair: fc.constantFrom<Repair>("none", "assistant", 20),
  forget: fc.integer({ min: 0, max: 5 }).map((one) => one === 0),
  leaveAfter: fc.option(fc.nat(6), { nil: undefined }),
});

function edited(messages: Message[], { edit, index }: Visit): Message[] {
  const next = messages.slice();
  const at = index % Math.max(1, next.length);
  if (edit === "fold") next.splice(at, 2, user(`Summary ${index}.`));
  if (edit === "change" && next[at]) next[at] = { ...next[at], content: `${next[at].content} and ${index}` };
  if (edit === "regenerate") next.pop();
  else next.push(user(filler(`q${index}`, 40 + 5 * index)));
  return next.length > 0 ? next : [user("again")];
}

describe("clients that append, edit, abort and return", () => {
  it("always get the answer to their own prompt, from cells that are exactly their prompt", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(visit, { minLength: 1, maxLength: 8 }),
        fc.boolean(),
        fc.boolean(),
        async (visits, tight, withRepair) => {
          const lines: string[] = [];
          const folder = mkdtempSync(join(tmpdir(), "pocket-pressure-"));
          const disk = { disk: { folder, bytes: 1 << 18 }, log: (line: string) => lines.push(line) };
          const more = withRepair
            ? { undoMax: 2, idleRepair: true, idleDelayMs: 0, ...disk }
            : { undoMax: 0 };
          const { chat, engine } = set(tight ? 1500 : 1 << 20, withRepair ? 2 : 4, more);
          const histories: Message[][] = [[], [], []];
          for (const one of visits) {
            const messages = edited(histories[one.client]!, one);
            const session = one.named ? { session: `client-${one.client}` } : {};
            // The third client is another tenant.
            const tenant = one.client === 2 ? "other" : undefined;
            const abort = new AbortController();
            const request = {
              messages,
              ...session,
              reuse: one.reuse,
              repair: one.repair,
              forget: one.forget,
              ...(tenant !== undefined && { tenant }),
              maxTokens: 6,
              signal: abort.signal,
            };
            const prompt = chat.applyTemplate(messages, [], { tenant }).tokens;
            let answer = "";
            let left = one.leaveAfter;
            try {
              for await (const event of chat.chat(request)) {
                if (event.type === "text-delta") answer += event.text;
                if (event.type === "answer-finished") {
                  const { kept, relocated, computed } = event.cacheUsage;
                  expect(kept + relocated + computed).toBe(prompt.length);
                }
                if (left !== undefined && left-- === 0) {
                  if (one.index % 2) abort.abort();
                  else break;
                }
              }
            } catch (cause) {
              expect(cause).toBeInstanceOf(PocketError);
              expect((cause as PocketError).code).toBe("CANCELLED");
            }
            if (one.leaveAfter === undefined) {
              const cells = Array.from(engine.sequences, ({ all }) => all);
              const fed = expectedAnswer(engine, prompt, 6);
              expect(cells).toContainEqual([...prompt, ...fed.slice(0, 5)]);
              expect(answer).toBe(text.tokenizer.decode(fed));
            }
            const listed = [...chat.list(), ...chat.list("other")];
            for (const { busy } of listed) expect(busy).toBe(false);
            const held = listed.map(({ tokens }) => tokens);
            if (!withRepair) {
              const lengths = Array.from(engine.sequences, ({ length }) => length);
              expect(held.toSorted()).toEqual(lengths.toSorted());
            } else if (one.index % 3 === 0) {
              await new Promise((resolve) => setTimeout(resolve, 3));
            }
            histories[one.client] =
              answer === "" ? messages : [...messages, { role: "assistant", content: answer }];
          }
          await chat.close();
          rmSync(folder, { recursive: true });
          expect(engine.sequences.size).toBe(0);
          expect(engine.busy).toBe(0);
          for (const line of lines) expect(line).toContain("The cache has");
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe("concurrent clients", () => {
  const opening = user(filler("shared ", 80));
  const asked = fc.record({
    turns: fc.array(fc.nat(3), { minLength: 1, maxLength: 4 }),
    name: fc.option(fc.constantFrom("x", "y"), { nil: undefined }),
    maxTokens: fc.integer({ min: 1, max: 30 }),
    leaves: fc.boolean(),
  });

  it("get the same answers as each would alone, with aborts and any pool size", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(asked, { minLength: 2, maxLength: 6 }),
        fc.boolean(),
        fc.boolean(),
        async (requests, tight, withRepair) => {
          const folder = mkdtempSync(join(tmpdir(), "pocket-pressure-"));
          const disk = { folder, bytes: 1 << 17 };
          const more = withRepair ? { idleRepair: true, idleDelayMs: 0, disk } : { undoMax: 0 };
          const { chat, engine } = set(tight ? 700 : 1 << 20, 3, more);
          engine.stepTokens = 32;
          const serve = async ({ turns, name, maxTokens, leaves }: (typeof requests)[number]) => {
            const messages = [opening, ...turns.map((turn) => user(filler(`${turn} `, 30 + turn)))];
            const expected = expectedAnswer(engine, chat.applyTemplate(messages).tokens, maxTokens);
            let answer = "";
            const session = name === undefined ? {} : { session: name };
            for await (const event of chat.chat({ messages, maxTokens, ...session })) {
              if (event.type === "text-delta") answer += event.text;
              if (leaves && event.type === "text-delta") return;
            }
            expect(answer).toBe(text.tokenizer.decode(expected));
          };
          const ends = await Promise.allSettled(requests.map(serve));
          for (const end of ends) {
            if (end.status === "rejected")
              expect([tight, (end.reason as PocketError).code]).toEqual([true, "CACHE_FULL"]);
          }
          expect(chat.list().every(({ busy }) => !busy)).toBe(true);
          expect(chat.list().length).toBeLessThanOrEqual(3);
          await chat.close();
          rmSync(folder, { recursive: true });
          expect(engine.sequences.size).toBe(0);
          expect(engine.tokensFree).toBe(engine.capacity);
        },
      ),
      { numRuns: 60 },
    );
  });
});

function expectedAnswer(engine: FakeEngine, prompt: readonly number[], count: number): number[] {
  const tokens = [...prompt];
  for (let at = 0; at < count; at++) tokens.push(engine.model(tokens));
  return tokens.slice(prompt.length);
}
