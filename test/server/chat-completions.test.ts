import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { pocketError } from "../../src/errors.ts";
import { buildServer } from "../../src/server/app.ts";
import { cacheUsage, ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";
import { parseStream } from "../support/sse-events.ts";

let backend: ScriptedBackend;
let app: ReturnType<typeof buildServer>;

beforeEach(() => {
  backend = new ScriptedBackend();
  app = buildServer(backend, serverOptions);
});
afterEach(() => app.close());

const hello = { model: "tiny", messages: [{ role: "user", content: "Hi" }] };

function post(body: object, headers: Record<string, string> = {}) {
  return app.inject({ method: "POST", url: "/v1/chat/completions", payload: body, headers });
}

describe("an answer at once", () => {
  test("has the OpenAI shape, the cache usage and the timings", async () => {
    const response = await post(hello);
    expect(response.statusCode).toBe(200);
    const body = response.json();
    expect(body).toMatchObject({
      object: "chat.completion",
      model: "tiny",
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: "Hello 🌍!" },
          logprobs: null,
          finish_reason: "stop",
        },
      ],
      usage: {
        prompt_tokens: 32,
        completion_tokens: 4,
        total_tokens: 36,
        prompt_tokens_details: { cached_tokens: 27 },
      },
      pocket: cacheUsage,
      timings: {
        cache_n: 27,
        prompt_n: 5,
        prompt_ms: 12,
        predicted_n: 4,
        predicted_ms: 30,
        predicted_per_second: 100,
      },
    });
    expect(body.id).toMatch(/^chatcmpl-/);
  });

  test("carries chat-shaped logprobs when asked", async () => {
    const { choices } = (await post({ ...hello, logprobs: true, top_logprobs: 2 })).json();
    expect(choices[0].logprobs.content).toHaveLength(4);
    expect(choices[0].logprobs.content[2]).toEqual({
      token: " 🌍",
      logprob: -0.5,
      bytes: [32, 240, 159, 140, 141],
      top_logprobs: [
        { token: " 🌍", logprob: -0.5, bytes: [32, 240, 159, 140, 141] },
        { token: "alt1", logprob: -0.5, bytes: [32, 240, 159, 140, 141] },
      ],
    });
  });

  test("that is cut by max_tokens says length", async () => {
    const { choices } = (await post({ ...hello, max_tokens: 4, max_completion_tokens: 2 })).json();
    expect(choices[0]).toMatchObject({ finish_reason: "length", message: { content: "Hello" } });
  });
});

describe("a stream", () => {
  test("starts with the role, ends with one finish chunk that carries the cache usage, then [DONE]", async () => {
    const response = await post({ ...hello, stream: true });
    expect(response.headers["content-type"]).toContain("text/event-stream");
    const { chunks, done } = parseStream(response.body);
    expect(done).toBe(true);
    expect(chunks[0]!.choices[0]!.delta).toEqual({ role: "assistant", content: "" });
    expect(chunks.slice(1).some((chunk) => "role" in chunk.choices[0]!.delta!)).toBe(false);
    expect(chunks.map((chunk) => chunk.choices[0]!.delta!.content ?? "").join("")).toBe("Hello 🌍!");
    expect(chunks.filter((chunk) => chunk.choices[0]!.finish_reason !== null)).toHaveLength(1);
    expect(chunks.at(-1)).toMatchObject({
      choices: [{ finish_reason: "stop" }],
      pocket: cacheUsage,
      timings: { cache_n: 27 },
    });
    expect(chunks.some((chunk) => "usage" in chunk)).toBe(false);
  });

  test("has a last chunk without choices but with usage and cache usage when include_usage is set", async () => {
    const response = await post({ ...hello, stream: true, stream_options: { include_usage: true } });
    const { chunks } = parseStream(response.body);
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 32 }, pocket: cacheUsage });
    expect(chunks.at(-2)!.choices[0]!.finish_reason).toBe("stop");
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
  });

  test("that is refused before its first event is an HTTP error", async () => {
    backend.refusal = pocketError(
      "CONTEXT_LENGTH_EXCEEDED",
      4096,
      5000,
      "4900 in the messages, 100 in the completion",
    );
    const response = await post({ ...hello, stream: true });
    expect(response.statusCode).toBe(400);
    expect(response.json().error).toMatchObject({
      type: "invalid_request_error",
      code: "context_length_exceeded",
    });
    expect(response.json().error.message).toMatch(/maximum context length is 4096 tokens.*5000/);
  });

  test("that fails midway ends with an error line and no finish", async () => {
    backend.failure = { afterTokens: 2, error: pocketError("BROKEN_LOGITS", "row 0 is NaN") };
    const { chunks, done } = parseStream((await post({ ...hello, stream: true })).body);
    expect(done).toBe(false);
    expect(chunks.at(-1)!.error!.code).toBe("broken_logits");
    expect(chunks.slice(0, -1).every((chunk) => chunk.choices[0]!.finish_reason === null)).toBe(true);
  });

  test("that fails in an unplanned way does not show its details", async () => {
    backend.failure = { afterTokens: 1, error: new Error("secret prompt text") };
    const response = await post({ ...hello, stream: true });
    expect(response.body).not.toContain("secret");
    expect(parseStream(response.body).chunks.at(-1)!.error!.code).toBe("internal");
  });

  test("writes comments while nothing comes, also before the first event", async () => {
    await app.close();
    app = buildServer(backend, { ...serverOptions, keepAliveMs: 20 });
    backend.planMs = 100;
    backend.prefillMs = 100;
    const { comments, done } = parseStream((await post({ ...hello, stream: true })).body);
    expect(done).toBe(true);
    expect(comments).toBeGreaterThanOrEqual(4);
  });

  test("equals the answer at once, text and logprobs", async () => {
    const whole = (await post({ ...hello, logprobs: true, top_logprobs: 1 })).json();
    const { chunks } = parseStream(
      (await post({ ...hello, logprobs: true, top_logprobs: 1, stream: true })).body,
    );
    const streamed = chunks.flatMap((chunk) => {
      const logprobs = chunk.choices[0]!.logprobs as { content: object[] } | null;
      return logprobs?.content ?? [];
    });
    expect(streamed).toEqual(whole.choices[0].logprobs.content);
  });
});

describe("messages", () => {
  test("may have parts, null content, developer role, tool calls and tool results", async () => {
    await post({
      model: "tiny",
      messages: [
        { role: "developer", content: "Be brief." },
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "text", text: "b" },
          ],
        },
        {
          role: "assistant",
          content: null,
          reasoning_content: "hm",
          tool_calls: [{ id: "c1", type: "function", function: { name: "ls", arguments: '{"a":' } }],
        },
        { role: "tool", tool_call_id: "c1", content: [{ type: "text", text: "file" }], cache_control: {} },
      ],
      tools: [{ type: "function", function: { name: "ls", parameters: { type: "object" }, strict: false } }],
      metadata: { anything: 1 },
    });
    expect(backend.asked[0]).toMatchObject({
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "ab" },
        {
          role: "assistant",
          content: "",
          reasoning: "hm",
          toolCalls: [{ id: "c1", name: "ls", arguments: '{"a":' }],
        },
        { role: "tool", content: "file", toolCallId: "c1" },
      ],
      tools: [{ name: "ls", parameters: { type: "object" } }],
    });
  });

  test("with __proto__ in an argument are served", async () => {
    const response = await app.inject({
      method: "POST",
      url: "/v1/chat/completions",
      headers: { "content-type": "application/json" },
      payload:
        '{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"__proto__":{"a":1}}}}]}',
    });
    expect(response.statusCode).toBe(200);
  });

  test("tools of other kinds are skipped and named in a header, and tool_choice none offers none", async () => {
    const tools = [{ type: "web_search" }, { type: "function", function: { name: "f" } }];
    const response = await post({ ...hello, tools });
    expect(response.headers["x-pocket-tools-skipped"]).toBe("web_search");
    expect(backend.asked[0]).toMatchObject({ tools: [{ name: "f" }] });
    await post({ ...hello, tools, tool_choice: "none" });
    expect(backend.asked[1]).not.toHaveProperty("tools");
  });
});

describe("the session, reuse and repair", () => {
  test.each([
    ["x-session-id", {}],
    ["x-session-affinity", {}],
    ["session-id", {}],
  ])("come from the header %s", async (name) => {
    await post(hello, { [name]: "abc" });
    expect(backend.asked[0]).toMatchObject({ session: "abc" });
  });

  test("come from the body before the headers before prompt_cache_key", async () => {
    const body = {
      ...hello,
      prompt_cache_key: "key",
      pocket: { session: "body", reuse: "prefix", repair: 0.25 },
    };
    await post(body, { "x-session-id": "header" });
    await post({ ...hello, prompt_cache_key: "key" }, { "x-session-id": "header" });
    await post({ ...hello, prompt_cache_key: "key" });
    expect(backend.asked.map(({ session }) => session)).toEqual(["body", "header", "key"]);
    expect(backend.asked[0]).toMatchObject({ reuse: "prefix", repair: 0.25 });
  });
});

test("sampling fields go down as asked, and what is left out or null stays out", async () => {
  await post({
    ...hello,
    top_k: -1,
    min_p: 0.1,
    seed: 5,
    frequency_penalty: 1,
    temperature: null,
    stop: "END",
  });
  expect(backend.asked[0]).toEqual({
    messages: [{ role: "user", content: "Hi" }],
    topK: 0,
    minP: 0.1,
    seed: 5,
    frequencyPenalty: 1,
    stop: ["END"],
    signal: expect.any(AbortSignal),
  });
  await post({ ...hello, temperature: 0, stop: ["a", "b"], seed: -1 });
  expect(backend.asked[1]).toMatchObject({ temperature: 0, stop: ["a", "b"] });
  expect(backend.asked[1]).not.toHaveProperty("seed");
});
