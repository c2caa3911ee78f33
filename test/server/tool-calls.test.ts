// Tool calls on the wire, as the official client reads them: whole and streamed, several at once, in a loop that
// runs them, and what a history may hold.
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources/chat/completions";
import { afterEach, describe, expect, test } from "vitest";
import { type ScriptedServer, serveAnswers, tagged } from "../support/scripted-server.ts";
import { parseStream } from "../support/sse-events.ts";

let server: ScriptedServer;
afterEach(() => server.close());

const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools: ChatCompletionTool[] = ["weather", "time"].map((name) => ({
  type: "function",
  function: { name, parameters },
}));
const messages: ChatCompletionMessageParam[] = [{ role: "user", content: "Paris?" }];
const body = { model: "tiny", messages, tools };
const paris = tagged("weather", { city: "Paris" });

describe("an answer with calls", () => {
  test("at once has null content, calls with ids, and the reason tool_calls", async () => {
    server = await serveAnswers(`${paris}\n${tagged("time", { city: "Łódź 🌍" })}`);
    const { choices } = await server.client.chat.completions.create(body);
    expect(choices[0]).toMatchObject({
      finish_reason: "tool_calls",
      message: {
        content: null,
        tool_calls: [
          { type: "function", function: { name: "weather", arguments: '{"city":"Paris"}' } },
          { type: "function", function: { name: "time", arguments: '{"city":"Łódź 🌍"}' } },
        ],
      },
    });
  });

  test("streams index, id and name once and then fragments, and comes to the same in the client", async () => {
    server = await serveAnswers(`Well.\n${paris}\n${tagged("time", { city: "x".repeat(200) })}`);
    const stream = server.client.chat.completions.stream({
      ...body,
      stream_options: { include_usage: true },
    });
    const deltas: object[][] = [];
    stream.on("chunk", ({ choices }) => {
      if (choices[0]?.delta.tool_calls) deltas.push(choices[0].delta.tool_calls);
    });
    const { choices } = await stream.finalChatCompletion();
    const firsts = deltas.flat().filter((delta) => "id" in delta);
    expect(firsts).toMatchObject([
      { index: 0, type: "function", function: { name: "weather", arguments: "" } },
      { index: 1, type: "function", function: { name: "time", arguments: "" } },
    ]);
    for (const delta of deltas.flat())
      if (!("id" in delta)) expect(Object.keys(delta)).toEqual(["index", "function"]);
    expect(deltas.length).toBeGreaterThan(200);
    expect(choices[0]!.finish_reason).toBe("tool_calls");
    expect(choices[0]!.message.content).toBe("Well.");
    expect(
      choices[0]!.message.tool_calls!.map(({ function: called }) => JSON.parse(called.arguments)),
    ).toEqual([{ city: "Paris" }, { city: "x".repeat(200) }]);
  });

  test("starts with the role, has one finish and nothing but known keys in its deltas", async () => {
    server = await serveAnswers(paris);
    const response = await fetch(`${server.url}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, stream: true }),
    });
    const { chunks, done } = parseStream(await response.text());
    expect(done).toBe(true);
    expect(chunks[0]!.choices[0]!.delta).toEqual({ role: "assistant", content: "" });
    for (const { choices } of chunks.slice(1, -1))
      expect(Object.keys(choices[0]!.delta!)).toEqual(["tool_calls"]);
    expect(chunks.filter(({ choices }) => choices[0]!.finish_reason !== null)).toHaveLength(1);
  });

  test("that the limit cuts says length, streamed or not", async () => {
    server = await serveAnswers(paris);
    for (const stream of [false, true]) {
      const asked = { ...body, max_tokens: paris.length - 25 };
      const { choices } = stream
        ? { choices: await finishOf(asked) }
        : await server.client.chat.completions.create(asked);
      expect(choices[0]!.finish_reason).toBe("length");
    }
  });

  test("is one call at most with parallel_tool_calls false", async () => {
    server = await serveAnswers(`${paris}\n${paris}`);
    const { choices } = await server.client.chat.completions.create({ ...body, parallel_tool_calls: false });
    expect(choices[0]!.message.tool_calls).toHaveLength(1);
    expect(choices[0]!.finish_reason).toBe("tool_calls");
  });

  test("is text with tool_choice none, and the prompt has no tools", async () => {
    server = await serveAnswers(paris);
    const { choices } = await server.client.chat.completions.create({ ...body, tool_choice: "none" });
    expect(choices[0]).toMatchObject({ finish_reason: "stop", message: { content: paris } });
    expect(server.prompts()[0]).not.toContain("weather");
  });

  test("is text where it is malformed", async () => {
    const broken = '<tool_call>\n{"name": "weather", "argu';
    server = await serveAnswers(broken);
    const { choices } = await server.client.chat.completions.create(body);
    expect(choices[0]).toMatchObject({ finish_reason: "stop", message: { content: broken } });
  });
});

async function finishOf(asked: object): Promise<{ finish_reason: string | null }[]> {
  const stream = await server.client.chat.completions.create({ ...body, ...asked, stream: true });
  let last: { finish_reason: string | null }[] = [];
  for await (const { choices } of stream) last = choices;
  return last;
}

test("the client's own loop runs the calls and sends their results, and the cells of every turn are found", async () => {
  server = await serveAnswers(`I look.\n${paris}`, tagged("time", { city: "Paris" }), "Sunny at noon.");
  const seen: string[] = [];
  const tool = (name: string) => ({
    type: "function" as const,
    function: {
      name,
      description: `Looks up the ${name}.`,
      parameters,
      parse: JSON.parse as (text: string) => { city: string },
      function: ({ city }: { city: string }) => {
        seen.push(`${name} ${city}`);
        return `${name} of ${city}`;
      },
    },
  });
  const runner = server.client.chat.completions.runTools({
    model: "tiny",
    messages,
    tools: [tool("weather"), tool("time")],
  });
  const usages: { prompt: number; completion: number; cached: number }[] = [];
  runner.on("chatCompletion", ({ usage }) => {
    const { prompt_tokens, completion_tokens, prompt_tokens_details } = usage!;
    usages.push({
      prompt: prompt_tokens,
      completion: completion_tokens,
      cached: prompt_tokens_details!.cached_tokens!,
    });
  });
  expect(await runner.finalContent()).toBe("Sunny at noon.");
  expect(seen).toEqual(["weather Paris", "time Paris"]);
  for (const turn of [1, 2]) {
    const before = usages[turn - 1]!;
    expect(usages[turn]!.cached).toBeGreaterThanOrEqual(before.prompt + before.completion - 2);
  }
});

describe("a history", () => {
  test("may hold results as text, parts or null, calls without ids, and arguments that are no JSON", async () => {
    server = await serveAnswers("fine");
    const call = (given: unknown, id?: string) => ({
      ...(id && { id }),
      type: "function",
      function: { name: "weather", arguments: given },
    });
    const history = [
      ...messages,
      {
        role: "assistant",
        content: null,
        tool_calls: [call('{"city":', "c1"), call("", "c2"), call({ city: "x" })],
      },
      { role: "tool", tool_call_id: "c1", content: "plain" },
      {
        role: "tool",
        tool_call_id: "c2",
        content: [
          { type: "text", text: "in " },
          { type: "text", text: "parts" },
        ],
      },
      { role: "tool", tool_call_id: "c3", content: null },
      { role: "assistant", content: "", tool_calls: [] },
    ] as unknown as ChatCompletionMessageParam[];
    const { choices } = await server.client.chat.completions.create({ ...body, messages: history });
    expect(choices[0]!.message.content).toBe("fine");
    const [prompt] = server.prompts();
    for (const text of ["plain", "in parts", '{\\"city\\":', '"x"']) expect(prompt).toContain(text);
  });
});
