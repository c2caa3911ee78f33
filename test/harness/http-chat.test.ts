import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ChatEvent, ChatRequest } from "../../src/chat/chat.ts";
import { pocketError } from "../../src/errors.ts";
import { HttpChat } from "../../src/harness/http-chat.ts";
import { buildServer } from "../../src/server/app.ts";
import { cacheUsage, ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";

async function eventsOf(chat: HttpChat, request: ChatRequest): Promise<ChatEvent[]> {
  const events: ChatEvent[] = [];
  for await (const event of chat.chat(request)) events.push(event);
  return events;
}

const textOf = (events: readonly ChatEvent[]) =>
  events.map((event) => (event.type === "text-delta" ? event.text : "")).join("");

describe("HttpChat on a Pocket server", () => {
  let backend: ScriptedBackend;
  let app: ReturnType<typeof buildServer>;
  let chat: HttpChat;
  beforeEach(async () => {
    backend = new ScriptedBackend();
    app = buildServer(backend, serverOptions);
    await app.listen({ host: "127.0.0.1", port: 0 });
    const { port } = app.server.address() as AddressInfo;
    chat = new HttpChat({ baseUrl: `http://127.0.0.1:${port}/v1/`, model: "tiny" });
  });
  afterEach(() => app.close());

  const request: ChatRequest = {
    messages: [
      { role: "system", content: "You are an agent." },
      { role: "user", content: "Find it." },
      { role: "assistant", content: "", toolCalls: [{ id: "1", name: "ls", arguments: '{"path": "."}' }] },
      { role: "tool", content: "a.txt", toolCallId: "1", name: "ls" },
    ],
    tools: [{ name: "ls", description: "Lists.", parameters: { type: "object" } }],
    maxTokens: 100,
    temperature: 0,
    topK: 20,
    stop: ["###"],
    session: "agent-1",
    reuse: "prefix",
    repair: "assistant",
    toolChoice: "required",
    callable: [{ name: "ls" }],
    parallelToolCalls: false,
    format: { type: "json_schema", schema: { type: "object" }, strict: true },
  };

  test("the server gets the request unchanged and returns the cache usage", async () => {
    const events = await eventsOf(chat, request);
    expect(backend.asked[0]).toMatchObject(request);
    expect(textOf(events)).toBe("Hello 🌍!");
    expect(events.at(-1)).toMatchObject({
      type: "answer-finished",
      reason: "stop",
      promptTokens: 32,
      completionTokens: 4,
      cacheUsage,
    });
  });

  test("a refusal keeps its code and has its hint once", async () => {
    backend.refusal = pocketError("CACHE_FULL", 1, 16, 9);
    await expect(eventsOf(chat, request)).rejects.toMatchObject({
      code: "CACHE_FULL",
      message: pocketError("CACHE_FULL", 1, 16, 9).message,
    });
  });

  test("a failure in the middle of an answer is thrown", async () => {
    backend.failure = { afterTokens: 2, error: pocketError("ENGINE_CLOSED") };
    await expect(eventsOf(chat, request)).rejects.toMatchObject({ code: "ENGINE_CLOSED" });
  });

  test("an abort reaches the server", async () => {
    backend.tokenMs = 50;
    const controller = new AbortController();
    const answer = (async () => {
      for await (const event of chat.chat({ ...request, signal: controller.signal })) {
        if (event.type === "text-delta") controller.abort();
      }
    })();
    await expect(answer).rejects.toMatchObject({ code: "CANCELLED" });
    await expect.poll(() => backend.cancelled).toBe(1);
  });
});

describe("HttpChat on another server", () => {
  let server: Server;
  let status: number;
  let body: string;
  let chat: HttpChat;
  beforeEach(async () => {
    status = 200;
    server = createServer((request, response) => {
      request.resume();
      response.writeHead(status, { "content-type": "text/event-stream" });
      // Chunks of 7 bytes split lines and characters.
      const bytes = Buffer.from(body);
      for (let start = 0; start < bytes.length; start += 7) response.write(bytes.subarray(start, start + 7));
      response.end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    chat = new HttpChat({ baseUrl: `http://127.0.0.1:${port}/v1`, model: "m" });
  });
  afterEach(() => new Promise((resolve) => server.close(resolve)));

  const hello = { messages: [{ role: "user", content: "Hi" }] } as const;
  const lines = (...chunks: object[]) => chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("");
  const delta = (delta: object, finish_reason: string | null = null) => ({
    choices: [{ delta, finish_reason }],
  });

  test("fragments of several tool calls are joined", async () => {
    const part = (index: number, id: string | undefined, name: string | undefined, text: string) =>
      delta({ tool_calls: [{ index, id, function: { name, arguments: text } }] });
    body = `: hi\n\n${lines(
      delta({ role: "assistant", content: null }),
      part(0, "x", "read", ""),
      part(0, undefined, undefined, '{"path":'),
      part(1, undefined, "ls", "{}"),
      part(0, undefined, undefined, '"ü"}'),
      delta({}, "tool_calls"),
      {
        choices: [],
        usage: { prompt_tokens: 9, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 5 } },
      },
    )}data: [DONE]\n\n`;
    const events = await eventsOf(chat, hello);
    expect(events).toMatchObject([
      { type: "tool-call", call: { id: "x", name: "read", arguments: '{"path":"ü"}' } },
      { type: "tool-call", call: { id: "call_1", name: "ls", arguments: "{}" } },
      {
        type: "answer-finished",
        reason: "tool_calls",
        promptTokens: 9,
        cacheUsage: { kept: 5, computed: 4, relocated: 0 },
      },
    ]);
  });

  test("an answer without usage, without [DONE] and with Windows line ends is accepted", async () => {
    body = lines(delta({ content: "Grüße" }), delta({}, "stop")).replaceAll("\n", "\r\n");
    const events = await eventsOf(chat, hello);
    expect(textOf(events)).toBe("Grüße");
    expect(events.at(-1)).toMatchObject({ reason: "stop", promptTokens: 0 });
  });

  test.each([
    ["breaks off", lines(delta({ content: "And so" })), 200, /its answer broke off/],
    ["sends no JSON", "data: {oops\n\n", 200, /SyntaxError|JSON/],
    [
      "sends an error in the stream",
      lines({ error: { message: "out of luck", code: 7 } }),
      200,
      /500: out of luck/,
    ],
    ["answers with a page", "<html>Bad gateway</html>", 502, /502: <html>Bad gateway/],
    [
      "has a code of its own",
      '{"error":{"message":"no such model","code":"nope"}}',
      404,
      /404: no such model/,
    ],
  ])("a server that %s is reported as failed", async (_, text, code, sentence) => {
    [body, status] = [text, code];
    await expect(eventsOf(chat, hello)).rejects.toMatchObject({
      code: "SERVER_FAILED",
      message: expect.stringMatching(sentence),
    });
  });

  test("OpenAI's error code for a prompt that is too long is recognized", async () => {
    [body, status] = ['{"error":{"message":"too long","code":"context_length_exceeded"}}', 400];
    await expect(eventsOf(chat, hello)).rejects.toMatchObject({ code: "CONTEXT_LENGTH_EXCEEDED" });
  });

  test("a refused connection is reported with its cause", async () => {
    const unreachable = new HttpChat({ baseUrl: "http://127.0.0.1:9/v1", model: "m" });
    await expect(eventsOf(unreachable, hello)).rejects.toThrow(
      /http:\/\/127\.0\.0\.1:9\/v1 failed: .*(ECONNREFUSED|bad port)/,
    );
  });
});
