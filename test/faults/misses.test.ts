// Silent cache misses: reuse that should happen and does not. Compares token counts.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import { assistant, ids, openTinyStack, system, type TinyStack, turns, user } from "../support/tiny-stack.ts";

let stack: TinyStack;
beforeAll(async () => {
  stack = await openTinyStack();
});
afterAll(() => stack?.close());

/** The longest stretch of tokens that a template puts around a message. */
const around = 24;
const lengthOf = (messages: readonly Message[]) => stack.backend.applyTemplate(messages).tokens.length;

test("reasoning that a client strips from its history is cut out, and the cells behind it are reused", async () => {
  const thought = (turn: number) => `<think>${"step by step ".repeat(6)}${turn}</think>`;
  const history = (thinking: boolean): Message[] =>
    turns(9, "think").map((message, turn) =>
      message.role === "assistant" && thinking ? assistant(`${thought(turn)}${message.content}`) : message,
    );
  await stack.ask([system("Think."), ...history(true)], { session: "s", maxTokens: 1 });
  const nudge = [...history(false), assistant("Yes."), user("Go on.")];
  const { cacheUsage, promptTokens } = await stack.ask([system("Think."), ...nudge], {
    session: "s",
    maxTokens: 1,
  });
  expect(cacheUsage.kept + cacheUsage.relocated).toBeGreaterThan(promptTokens / 2);
  expect(cacheUsage.relocated).toBeGreaterThan(100);
});

test("generated text in the history is matched by its original token ids", async () => {
  for (let attempt = 0; attempt < 30; attempt++) {
    const session = `said-${attempt}`;
    const first = [user(`Say ${attempt}`)];
    const said = await stack.ask(first, { session, temperature: 1.5, seed: attempt, maxTokens: 24 });
    const next = [...first, assistant(said.text), user("More")];
    const { cacheUsage } = await stack.ask(next, { session, maxTokens: 1 });
    // All but the token sampled last, which has no cell, and the one that ended the answer.
    const least = said.promptTokens + said.completionTokens - 2;
    expect([attempt, cacheUsage.kept >= least, cacheUsage.relocated]).toEqual([attempt, true, 0]);
    stack.backend.deleteSession(session);
  }
});

test("the cache usage names the reason why reuse stopped", async () => {
  stack.clear();
  const messages = [system("You tell the truth."), ...turns(5, "why")];
  const usages = [];
  usages.push((await stack.ask(messages, { session: "s" })).cacheUsage);
  usages.push((await stack.ask(messages, { session: "s", reuse: "none" })).cacheUsage);
  const edited = [messages[0]!, user("Other."), ...messages.slice(2)];
  usages.push((await stack.ask(edited, { session: "s", reuse: "prefix" })).cacheUsage);
  const reasons = usages.map(({ reason }) => reason);
  for (const reason of reasons) expect(reason).toMatch(/^[A-Z].{10,}\.$/);
  expect(new Set(reasons).size).toBe(3);
});

test("all earlier tokens are reused at every length, without rounding to pages", async () => {
  stack.clear();
  const whole = ids(70, 52);
  await stack.ask(whole.slice(0, 1), { session: "grow", maxTokens: 1 });
  for (let length = 2; length <= 70; length++) {
    const { cacheUsage } = await stack.ask(whole.slice(0, length), { session: "grow", maxTokens: 1 });
    expect([length, cacheUsage.kept, cacheUsage.computed]).toEqual([length, length - 1, 1]);
  }
});

test("an unchanged history computes the new message only, at every length", async () => {
  const history = turns(11, "lag");
  await stack.ask(history.slice(0, 1), { session: "turns", maxTokens: 1 });
  for (let count = 3; count <= 11; count += 2) {
    const { cacheUsage } = await stack.ask(history.slice(0, count), { session: "turns", maxTokens: 1 });
    const grown = lengthOf(history.slice(0, count)) - lengthOf(history.slice(0, count - 2));
    expect([count, cacheUsage.computed <= grown + around]).toEqual([count, true]);
  }
});
