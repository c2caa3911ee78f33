// Everything at once on the tiny model: what a plain client sees of kept, relocated and computed tokens, and that
// one who leaves stops costing.
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

function ask(messages: ChatCompletionMessageParam[], more: object = {}): Promise<AnswerWithUsage> {
  const body = { model: "tiny", messages, max_tokens: 4, temperature: 0, ...more };
  return server.client.chat.completions.create(body) as unknown as Promise<AnswerWithUsage>;
}

/** A conversation whose every turn differs from the others. */
function conversation(turns: number): ChatCompletionMessageParam[] {
  return Array.from({ length: turns }, (_, turn) => ({
    role: turn % 2 === 0 ? ("user" as const) : ("assistant" as const),
    content: `${turn % 2 === 0 ? "Question" : "Answer"} ${turn}: ${`word${turn * 7} `.repeat(12)}`,
  }));
}

const system = { role: "system" as const, content: "You are a careful assistant. ".repeat(3) };

test("replacing old messages by a summary computes the summary and the new turn only", async () => {
  const turns = conversation(21);
  const pocket = { session: "compaction" };
  const before = await ask([system, ...turns], { pocket });
  const summary = { role: "user" as const, content: "Summary: twelve turns about words." };
  const next: ChatCompletionMessageParam[] = [
    { role: "assistant", content: before.choices[0]!.message.content },
    { role: "user", content: "And now?" },
  ];
  const after = await ask([system, summary, ...turns.slice(13), ...next], { pocket });
  const { kept, relocated, computed } = after.pocket;
  expect(kept + relocated + computed).toBe(after.usage!.prompt_tokens);
  expect(after.usage!.prompt_tokens_details!.cached_tokens).toBe(kept + relocated);
  const added = await server.client.chat.completions.create({
    model: "tiny",
    messages: [summary, next[1]!],
    max_tokens: 1,
  });
  expect(computed).toBeLessThanOrEqual(added.usage!.prompt_tokens + 32);
  expect(relocated).toBeGreaterThan(after.usage!.prompt_tokens / 2);
});

test("with reuse prefix everything behind the edit is computed, and the answer is that of a cold start", async () => {
  const turns = conversation(11);
  await ask([system, ...turns], { pocket: { session: "prefix" } });
  const edited = [system, { role: "user" as const, content: "Short." }, ...turns.slice(3)];
  const exact = await ask(edited, { pocket: { session: "prefix", reuse: "prefix" }, max_tokens: 12 });
  const cold = await ask(edited, { pocket: { session: "cold", reuse: "none" }, max_tokens: 12 });
  expect(exact.pocket).toMatchObject({ relocated: 0, stale: 0 });
  expect(exact.pocket.kept).toBeGreaterThan(0);
  expect(cold.pocket).toMatchObject({ kept: 0, relocated: 0 });
  expect(exact.choices[0]!.message.content).toBe(cold.choices[0]!.message.content);
});

test("a second turn keeps the whole first one, answer included, whatever the session is called", async () => {
  for (const headers of [{}, { "x-session-id": "named-by-header" }]) {
    const first = [{ role: "user" as const, content: `Hello ${Object.keys(headers).length} there` }];
    const create = async (messages: ChatCompletionMessageParam[]) =>
      (await server.client.chat.completions.create(
        { model: "tiny", messages, max_tokens: 6, temperature: 0 },
        { headers },
      )) as unknown as AnswerWithUsage;
    const one = await create(first);
    const said = { role: "assistant" as const, content: one.choices[0]!.message.content };
    const two = await create([...first, said, { role: "user", content: "More" }]);
    expect(two.pocket.relocated).toBe(0);
    expect(two.pocket.kept).toBeGreaterThanOrEqual(one.usage!.prompt_tokens);
  }
});

test("a session can be listed and deleted, and its pages come back", async () => {
  const { pocket } = await ask(conversation(3), { pocket: { session: "short-lived" } });
  expect(pocket.session).toBe("short-lived");
  const url = `http://127.0.0.1:${server.port}/v1/sessions`;
  const listed = (await (await fetch(url)).json()) as { data: { id: string; tokens: number }[] };
  expect(listed.data.find(({ id }) => id === "short-lived")!.tokens).toBeGreaterThan(0);
  const { pagesFree, pagesUsed, pagesLent } = await server.health();
  expect(pagesLent).toBe(pagesUsed); // the former name
  expect((await fetch(`${url}/short-lived`, { method: "DELETE" })).status).toBe(200);
  expect((await server.health()).pagesFree).toBeGreaterThan(pagesFree);
  expect((await fetch(`${url}/short-lived`, { method: "DELETE" })).status).toBe(404);
});

test("a prompt over the window is refused with both numbers before anything is computed", async () => {
  const { tokensComputed } = await server.health();
  const asked = ask([{ role: "user", content: "x ".repeat(6000) }]);
  await expect(asked).rejects.toMatchObject({ status: 400, code: "context_length_exceeded" });
  await expect(asked).rejects.toThrow(/maximum context length is 8192 tokens.*requested 12\d{3}/);
  expect((await server.health()).tokensComputed).toBe(tokensComputed);
});

test("seeded sampling gives the same answer twice, streamed or not", async () => {
  const messages = [{ role: "user" as const, content: "Tell me" }];
  const body = {
    model: "tiny",
    messages,
    max_tokens: 16,
    temperature: 1,
    seed: 7,
    pocket: { reuse: "none" },
  };
  const whole = await server.client.chat.completions.create(body);
  const again = await server.client.chat.completions.create(body);
  const streamed = await server.client.chat.completions.stream(body).finalChatCompletion();
  expect(again.choices[0]!.message.content).toBe(whole.choices[0]!.message.content);
  expect(streamed.choices[0]!.message.content).toBe(whole.choices[0]!.message.content);
});

test("two clients stream at once, and one that is killed stops costing without disturbing the other", async () => {
  const prompt = await talkativePrompt();
  const open = (signal?: AbortSignal) =>
    server.client.completions.create(
      { model: "tiny", prompt, max_tokens: 600, temperature: 0, stream: true },
      signal ? { signal } : {},
    );
  const alone = await readAll(await open());
  const kill = new AbortController();
  const [victim, survivor] = await Promise.all([open(kill.signal), open()]);
  const rest = readAll(survivor);
  let seen = 0;
  const reading = (async () => {
    for await (const chunk of victim) {
      seen += chunk.choices.length;
      if (seen === 20) kill.abort();
    }
  })();
  await reading.catch(() => {});
  expect(seen).toBeGreaterThanOrEqual(20);
  expect(await rest).toBe(alone);
  while ((await server.health()).running > 0) await new Promise((resolve) => setTimeout(resolve, 5));
}, 30_000);

/** A prompt after which greedy decoding of the random model runs on instead of stopping. */
async function talkativePrompt(): Promise<string> {
  for (let attempt = 0; attempt < 40; attempt++) {
    const prompt = `Attempt ${attempt}:`;
    const { usage } = await server.client.completions.create({
      model: "tiny",
      prompt,
      max_tokens: 600,
      temperature: 0,
    });
    if (usage!.completion_tokens === 600) return prompt;
  }
  throw new Error("every prompt ends early");
}

async function readAll(stream: AsyncIterable<{ choices: { text: string }[] }>): Promise<string> {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
  return text;
}
