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

function post(url: string, payload: object) {
  return app.inject({ method: "POST", url, payload });
}

describe("completions", () => {
  test("take text and answer in their own shape, 16 tokens at most unless told", async () => {
    const response = await post("/v1/completions", { model: "tiny", prompt: "Once", logprobs: 2 });
    expect(response.json()).toMatchObject({
      object: "text_completion",
      choices: [
        {
          text: "Hello 🌍!",
          finish_reason: "stop",
          logprobs: {
            tokens: ["Hel", "lo", " 🌍", "!"],
            token_logprobs: [-0.5, -0.5, -0.5, -0.5],
            top_logprobs: [{ Hel: -0.5, alt1: -0.5 }, {}, {}, {}],
            text_offset: [0, 3, 5, 8],
          },
        },
      ],
      usage: { prompt_tokens_details: { cached_tokens: 27 } },
      pocket: cacheUsage,
    });
    expect(backend.asked[0]).toMatchObject({ prompt: "Once", maxTokens: 16, topLogprobs: 2 });
  });

  test("stream with the same text, and usage when asked", async () => {
    const body = { prompt: [1, 2, 3], stream: true, stream_options: { include_usage: true }, max_tokens: 3 };
    const { chunks, done } = parseStream((await post("/v1/completions", body)).body);
    expect(done).toBe(true);
    expect(chunks.map((chunk) => chunk.choices[0]?.text ?? "").join("")).toBe("Hello 🌍");
    expect(chunks.at(-2)!.choices[0]!.finish_reason).toBe("length");
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 32 }, pocket: cacheUsage });
    expect(backend.asked[0]).toMatchObject({ prompt: [1, 2, 3], maxTokens: 3 });
  });

  test("take a list with a single prompt as that prompt", async () => {
    await post("/v1/completions", { prompt: ["one"] });
    await post("/v1/completions", { prompt: [[4, 5]] });
    expect(backend.asked.map((asked) => "prompt" in asked && asked.prompt)).toEqual(["one", [4, 5]]);
  });

  test.each([
    ["a batch", { prompt: ["a", "b"] }, "prompt"],
    ["an empty list", { prompt: [] }, "prompt"],
    ["no prompt", {}, "prompt"],
    ["a token id outside the vocabulary", { prompt: [1, 300] }, "prompt.1"],
    ["a negative token id", { prompt: [-1] }, "prompt.0"],
    ["an echo", { prompt: "a", echo: true }, "echo"],
    ["a suffix", { prompt: "a", suffix: "b" }, "suffix"],
    ["best_of 3", { prompt: "a", best_of: 3 }, "best_of"],
  ])("refuse %s by its field", async (_name, body, param) => {
    const response = await post("/v1/completions", body);
    expect(response.statusCode).toBe(400);
    expect(response.json().error.param).toBe(param);
    expect(backend.asked).toHaveLength(0);
  });
});

test("the model is listed, found by id, and any other is 404 in every route", async () => {
  const list = (await app.inject("/v1/models")).json();
  expect(list.data[0]).toMatchObject({ id: "tiny", object: "model", max_model_len: 4096 });
  expect((await app.inject("/v1/models/tiny")).json().id).toBe("tiny");
  const answers = [
    await app.inject("/v1/models/org/other"),
    await post("/v1/chat/completions", { model: "gpt-9", messages: [{ role: "user", content: "x" }] }),
    await post("/v1/completions", { model: "gpt-9", prompt: "x" }),
  ];
  for (const response of answers) {
    expect(response.statusCode).toBe(404);
    expect(response.json().error.code).toBe("model_not_found");
    expect(response.json().error.message).toContain("tiny");
  }
});

test("health tells model and engine, and a broken engine since when", async () => {
  expect((await app.inject("/health")).json()).toMatchObject({
    status: "ok",
    model: "tiny",
    requests: { active: 0, queued: 0 },
    engine: { pagesFree: 10 },
  });
  backend.broken = { message: "page 3 is allocated twice", since: Date.UTC(2026, 0, 1) };
  const response = await app.inject("/health");
  expect(response.statusCode).toBe(500);
  expect(response.json()).toMatchObject({ status: "broken", since: "2026-01-01T00:00:00.000Z" });
});

describe("tokens", () => {
  test("go there and back", async () => {
    const { tokens, count } = (await post("/tokenize", { content: "héllo" })).json();
    expect(count).toBe(6);
    expect((await post("/detokenize", { tokens })).json()).toEqual({ content: "héllo" });
    const pieces = (await post("/tokenize", { content: "ab", with_pieces: true })).json();
    expect(pieces.tokens).toEqual([
      { id: 97, piece: "a" },
      { id: 98, piece: "b" },
    ]);
  });

  test("outside the vocabulary are refused by index", async () => {
    const response = await post("/detokenize", { tokens: [1, 999] });
    expect(response.statusCode).toBe(400);
    expect(response.json().error.param).toBe("tokens.1");
  });

  test("of a rendered template can be seen without computing", async () => {
    const messages = [
      { role: "developer", content: "S" },
      { role: "user", content: [{ type: "text", text: "U" }] },
    ];
    const tools = [{ type: "function", function: { name: "f" } }];
    const { prompt, count } = (await post("/apply-template", { messages, tools })).json();
    expect(prompt).toBe("<tool f><system>S<user>U");
    expect(count).toBe(24);
    expect(backend.asked).toHaveLength(0);
  });
});

test("sessions are listed and deleted, and an unknown one is 404", async () => {
  expect((await app.inject("/v1/sessions")).json().data).toMatchObject([
    { id: "s-1", tokens: 32, exact_tokens: 12 },
  ]);
  expect((await app.inject({ method: "DELETE", url: "/v1/sessions/s-1" })).json().deleted).toBe(true);
  const again = await app.inject({ method: "DELETE", url: "/v1/sessions/s-1" });
  expect(again.statusCode).toBe(404);
  expect(again.json().error.code).toBe("session_not_found");
});

describe("errors in the OpenAI form", () => {
  test("an unknown path is 404 and a wrong method 405 with what is allowed", async () => {
    const missing = await app.inject("/v2/nothing");
    expect([missing.statusCode, missing.json().error.code]).toEqual([404, "not_found"]);
    const wrong = await app.inject("/v1/chat/completions");
    expect([wrong.statusCode, wrong.json().error.code, wrong.headers.allow]).toEqual([
      405,
      "method_not_allowed",
      "POST",
    ]);
    const item = await app.inject({ method: "PUT", url: "/v1/sessions/abc" });
    expect([item.statusCode, item.headers.allow]).toEqual([405, "GET, DELETE"]);
  });

  test.each(["{", '{"messages": [}', "", "[1,"])("malformed JSON %j is 400", async (payload) => {
    const response = await app.inject({
      method: "POST",
      url: "/v1/chat/completions",
      headers: { "content-type": "application/json" },
      payload,
    });
    expect([response.statusCode, response.json().error.code]).toEqual([400, "malformed_json"]);
  });

  test.each(["5", "null", '"text"', "[]"])("a body of %s is no object and 400", async (payload) => {
    const response = await app.inject({
      method: "POST",
      url: "/v1/chat/completions",
      headers: { "content-type": "application/json" },
      payload,
    });
    expect([response.statusCode, response.json().error.code]).toEqual([400, "bad_request"]);
  });

  test("another content type is 400 and says which one is needed", async () => {
    const headers = { "content-type": "text/xml" };
    const response = await app.inject({ method: "POST", url: "/v1/completions", headers, payload: "<a/>" });
    expect(response.statusCode).toBe(400);
    expect(response.json().error.message).toContain("application/json");
  });

  test("a body over the limit is 413, one of 5 MB passes", async () => {
    const small = buildServer(backend, { ...serverOptions, bodyBytes: 2048 });
    const large = { messages: [{ role: "user", content: "x".repeat(5_000_000) }] };
    const refused = await small.inject({ method: "POST", url: "/v1/chat/completions", payload: large });
    expect([refused.statusCode, refused.json().error.code]).toEqual([413, "payload_too_large"]);
    await small.close();
    expect((await post("/v1/chat/completions", large)).statusCode).toBe(200);
  });

  test("503 comes with Retry-After, an unplanned failure is 500 without details", async () => {
    backend.refusal = pocketError("CACHE_TOO_SMALL", 900, 512);
    const full = await post("/v1/completions", { prompt: "x" });
    expect([full.statusCode, full.headers["retry-after"]]).toEqual([503, "60"]);
    expect(full.headers["x-should-retry"]).toBe("false");
    expect(full.json().error.message).toContain("cache.tokens");
    backend.refusal = null;
    backend.failure = { afterTokens: 0, error: new Error("secret") };
    const inside = await post("/v1/completions", { prompt: "x" });
    expect([inside.statusCode, inside.json().error.code]).toEqual([500, "internal"]);
    expect(inside.body).not.toContain("secret");
  });
});

describe("the guard", () => {
  test.each([
    [{ host: "evil.example" }, 403],
    [{ host: "127.0.0.1.evil.example:8080" }, 403],
    [{ host: "localhost:8080" }, 200],
    [{ host: "[::1]:8080" }, 200],
    [{ host: "192.168.1.7:8080" }, 200],
    [{ host: "localhost", origin: "https://evil.example" }, 403],
    [{ host: "localhost", origin: "null" }, 403],
    [{ host: "localhost", origin: "http://localhost:3000" }, 200],
  ])("answers %j with %i", async (headers, status) => {
    expect((await app.inject({ url: "/v1/models", headers })).statusCode).toBe(status);
  });

  test("lets listed hosts and origins through, and CORS headers stand on streams too", async () => {
    const listed = buildServer(backend, { ...serverOptions, allowedHosts: ["box.lan"] });
    const headers = { host: "box.lan:8080", origin: "http://box.lan:3000" };
    const payload = { prompt: "x", stream: true };
    const response = await listed.inject({ method: "POST", url: "/v1/completions", headers, payload });
    expect(response.statusCode).toBe(200);
    expect(response.headers["access-control-allow-origin"]).toBe("http://box.lan:3000");
    const preflight = await listed.inject({
      method: "OPTIONS",
      url: "/v1/sessions/abc",
      headers: { ...headers, "access-control-request-method": "DELETE" },
    });
    expect(preflight.headers["access-control-allow-methods"]).toContain("DELETE");
    await listed.close();
  });

  test("asks for the key in either header, but not for health", async () => {
    const keyed = buildServer(backend, { ...serverOptions, apiKeys: ["k-123"] });
    const status = async (url: string, headers: Record<string, string>) =>
      (await keyed.inject({ url, headers })).statusCode;
    expect(await status("/v1/models", {})).toBe(401);
    expect(await status("/v1/models", { authorization: "Bearer k-124" })).toBe(401);
    expect(await status("/v1/models", { authorization: "Bearer k-123" })).toBe(200);
    expect(await status("/v1/models", { "x-api-key": "k-123" })).toBe(200);
    expect(await status("/nothing", {})).toBe(401);
    expect(await status("/health", {})).toBe(200);
    await keyed.close();
  });
});
