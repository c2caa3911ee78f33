// What a plain client pays for getting compacted messages back, and for a side question, over HTTP on the tiny
// model. It says neither "compact" nor "expand": it sends lists of messages.
import type { ChatCompletion, ChatCompletionMessageParam } from "openai/resources/chat/completions";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { CacheUsage } from "../../src/chat/chat.ts";
import { startTinyServer, type TinyServer } from "../support/tiny-server.ts";

let server: TinyServer;
beforeAll(async () => {
  server = await startTinyServer();
});
afterAll(() => server?.close());

type AnswerWithUsage = ChatCompletion & { readonly pocket: CacheUsage };

function ask(
  messages: ChatCompletionMessageParam[],
  pocket: object,
  more: object = {},
): Promise<AnswerWithUsage> {
  const body = { model: "tiny", messages, max_tokens: 4, temperature: 0, pocket, ...more };
  return server.client.chat.completions.create(body) as unknown as Promise<AnswerWithUsage>;
}

const message = (role: "system" | "user" | "assistant", content: string): ChatCompletionMessageParam => ({
  role,
  content,
});
const exchange = (name: string) => [
  message("assistant", `I read ${name}.`),
  message("user", `${name}: ${Array.from({ length: 60 }, (_, at) => `${name} ${at}`).join(", ")}`),
];
const start = [message("system", "You are careful."), message("user", "Find the answer.")];
const read = ["one", "two", "three", "four"].map(exchange);
const turn = message("user", "And now?");

/** Tokens of a prompt with these messages and a short turn, from a request that is answered from nothing. */
async function length(messages: ChatCompletionMessageParam[]): Promise<number> {
  const { usage } = await ask([...messages, turn], { session: "length", reuse: "none" });
  return usage!.prompt_tokens;
}

test("messages that come back after a compaction are not computed again", async () => {
  const session = { session: "agent" };
  await ask([...start, ...read.flat(), turn], session);
  const compacted = [...start, message("user", "[memory] one and two."), ...read.slice(2).flat()];
  const edit = await ask([...compacted, turn], session);
  expect(edit.pocket.relocated).toBeGreaterThan(200);
  const copies = read.slice(0, 2).flat();
  const framed = (await length(copies)) - (await length([]));
  const asked = message("assistant", "I expand.");
  const fresh = await length([asked]);
  const { tokensComputed } = await server.health();
  const { pocket, usage } = await ask([...compacted, asked, ...copies, turn], session);
  expect(pocket.relocated).toBeGreaterThanOrEqual(framed);
  expect(pocket.kept + pocket.relocated + pocket.computed).toBe(usage!.prompt_tokens);
  expect(pocket.computed).toBeLessThanOrEqual(fresh + 32);
  expect(pocket.reason).toContain("were adopted");
  const sampled = usage!.completion_tokens - 1;
  expect((await server.health()).tokensComputed - tokensComputed).toBe(pocket.computed + sampled);
});

test("a side question on a fork computes itself and leaves the session as it was", async () => {
  const messages = [...start, ...read.flat(), turn];
  await ask(messages, { session: "side" });
  const map = async () => (await fetch(`http://127.0.0.1:${server.port}/v1/sessions/side`)).json();
  const before = await map();
  const question = message("user", "What was one?");
  const { pocket } = await ask([...messages.slice(0, 6), question], { session: "side", fork: true });
  expect(pocket.session).not.toBe("side");
  expect(pocket.computed).toBeLessThan(48);
  expect(await map()).toEqual(before);
  await expect(ask(messages, { session: "side", fork: true, forget: true })).rejects.toMatchObject({
    status: 400,
    param: "pocket.fork",
  });
});

test("a side question of an agent keeps the tools in its prompt, computes itself, and is answered in words", async () => {
  const parameters = { type: "object", properties: { path: { type: "string" } } };
  const tools = Array.from({ length: 4 }, (_, at) => ({
    type: "function",
    function: {
      name: `read_${at}`,
      description: "Reads a file and returns its text, line by line.",
      parameters,
    },
  }));
  const messages = [...start, ...read.flat(), turn];
  await ask(messages, { session: "agent" }, { tools });
  const question = message("user", "Summarize.");
  const silent = await ask(
    [...messages.slice(0, 6), question],
    { session: "agent", fork: true },
    { tools, tool_choice: "none" },
  );
  expect(silent.pocket.computed).toBeLessThan(48);
  expect(silent.choices[0]!.message).not.toHaveProperty("tool_calls");
  expect(silent.choices[0]!.message.content?.trimStart() ?? "").not.toMatch(/^[{[`<]/);
});
