// What only a real socket shows: the official client, clients that leave, the queue, and the way down.
import { request as httpRequest } from "node:http";
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { pocketError } from "../../src/errors.ts";
import { buildServer } from "../../src/server/app.ts";
import { ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";
import { parseStream } from "../support/sse-events.ts";

let backend: ScriptedBackend;
let app: ReturnType<typeof buildServer>;
let port: number;
let client: OpenAI;

beforeEach(async () => {
  backend = new ScriptedBackend();
  app = buildServer(backend, serverOptions);
  await app.listen({ host: "127.0.0.1", port: 0 });
  port = (app.server.address() as AddressInfo).port;
  client = new OpenAI({ baseURL: `http://127.0.0.1:${port}/v1`, apiKey: "none", maxRetries: 0 });
});
afterEach(() => app.close());

const messages = [{ role: "user" as const, content: "Hi" }];

/** Resolves once `holds` does; a test that waits in vain fails by its own time limit. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** A request that can be hung up on. */
function open(path: string, body: object) {
  const headers = { "content-type": "application/json" };
  const request = httpRequest({ host: "127.0.0.1", port, path, method: "POST", headers });
  const response = new Promise<{ status: number; body: string; retryAfter: string | undefined }>(
    (resolve, reject) => {
      request.on("error", reject);
      request.on("response", (incoming) => {
        let text = "";
        incoming.on("data", (data) => {
          text += data;
        });
        const { statusCode, headers: received } = incoming;
        const settle = () =>
          resolve({ status: statusCode!, body: text, retryAfter: received["retry-after"] });
        incoming.on("end", settle).on("error", settle);
      });
    },
  );
  response.catch(() => {});
  request.end(JSON.stringify(body));
  return { request, response };
}

describe("the official client", () => {
  test("reads an answer, a stream with usage, and lists models", async () => {
    const whole = await client.chat.completions.create({ model: "tiny", messages });
    expect(whole.choices[0]!.message.content).toBe("Hello 🌍!");
    expect(whole.usage?.prompt_tokens_details?.cached_tokens).toBe(27);
    const stream = await client.chat.completions.create({
      model: "tiny",
      messages,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage: OpenAI.CompletionUsage | null | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage;
    }
    expect(text).toBe("Hello 🌍!");
    expect(usage?.total_tokens).toBe(36);
    const models = await client.models.list();
    expect(models.data.map(({ id }) => id)).toEqual(["tiny"]);
  });

  test("assembles a streamed message with its helper, and a text completion", async () => {
    const final = await client.chat.completions.stream({ model: "tiny", messages }).finalChatCompletion();
    expect(final.choices[0]!.message.content).toBe("Hello 🌍!");
    expect(final).toHaveProperty("pocket.relocated", 20);
    const completion = await client.completions.create({ model: "tiny", prompt: "Once" });
    expect(completion.choices[0]!.text).toBe("Hello 🌍!");
  });

  test("throws its own error classes for ours, with code and param", async () => {
    const asked = client.chat.completions.create({ model: "tiny", messages, temperature: 9 });
    await expect(asked).rejects.toMatchObject({ status: 400, param: "temperature", code: "bad_request" });
    await expect(client.chat.completions.create({ model: "x", messages })).rejects.toBeInstanceOf(
      OpenAI.NotFoundError,
    );
    backend.failure = {
      afterTokens: 2,
      error: pocketError("ENGINE_BROKEN", "now", "a page is allocated twice"),
    };
    const stream = await client.chat.completions.create({ model: "tiny", messages, stream: true });
    const drain = async () => {
      for await (const chunk of stream) expect(chunk.choices).toHaveLength(1);
    };
    await expect(drain()).rejects.toBeInstanceOf(OpenAI.APIError);
  });
});

describe("a client that leaves", () => {
  function slow(what: "tokenMs" | "prefillMs", ms: number): void {
    backend[what] = ms;
  }

  test.each([
    ["in the middle of a stream", { stream: true }, () => slow("tokenMs", 50)],
    ["during the prefill of a stream", { stream: true }, () => slow("prefillMs", 60_000)],
    ["before a whole answer is there", {}, () => slow("prefillMs", 60_000)],
  ])(
    "%s is cancelled at once",
    async (_name, options, slowDown) => {
      slowDown();
      backend.tokens = Array.from({ length: 1000 }, () => "x");
      const { request } = open("/v1/chat/completions", { messages, ...options });
      await until(() => backend.live === 1);
      request.destroy();
      await until(() => backend.live === 0);
      expect(backend.cancelled).toBe(1);
      backend.prefillMs = 0;
      const next = await client.chat.completions.create({ model: "tiny", messages, max_tokens: 1 });
      expect(next.choices[0]!.finish_reason).toBe("length");
    },
    20_000,
  );

  test("while it waits in the queue leaves the queue and affects no other request", async () => {
    backend.prefillMs = 60_000;
    const running = [1, 2].map(() => open("/v1/chat/completions", { messages }));
    await until(() => backend.live === 2);
    const waiting = open("/v1/chat/completions", { messages, stream: true });
    const queued = async () =>
      (await (await fetch(`http://127.0.0.1:${port}/health`)).json()) as {
        requests: { queued: number };
      };
    while ((await queued()).requests.queued !== 1);
    waiting.request.destroy();
    while ((await queued()).requests.queued !== 0);
    expect(backend.asked).toHaveLength(2);
    expect(backend.live).toBe(2);
    for (const { request } of running) request.destroy();
    await until(() => backend.live === 0);
  }, 20_000);
});

describe("the queue", () => {
  test("rejects what does not fit with 429 and Retry-After, and serves all others", async () => {
    backend.tokenMs = 20;
    const sent = Array.from({ length: 10 }, (_, index) =>
      open("/v1/chat/completions", { messages, stream: index % 2 === 0 }),
    );
    const answers = await Promise.all(sent.map(({ response }) => response));
    const refused = answers.filter(({ status }) => status === 429);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(4);
    expect(refused).toHaveLength(6);
    for (const { body, retryAfter } of refused) {
      expect(retryAfter).toBe("1");
      expect(JSON.parse(body).error).toMatchObject({ type: "rate_limit_error", code: "queue_full" });
    }
  });

  test("lets two streams run side by side", async () => {
    backend.tokenMs = 20;
    backend.tokens = Array.from({ length: 10 }, () => "x");
    const pair = [1, 2].map(() => open("/v1/chat/completions", { messages, stream: true }));
    await until(() => backend.live === 2);
    const answers = await Promise.all(pair.map(({ response }) => response));
    for (const { body } of answers) expect(parseStream(body).done).toBe(true);
  });
});

describe("on the way down", () => {
  test("streams end with an error event, whole answers with 503, and nothing hangs", async () => {
    backend.tokenMs = 30;
    backend.tokens = Array.from({ length: 1000 }, () => "x");
    const stream = open("/v1/chat/completions", { messages, stream: true });
    const whole = open("/v1/chat/completions", { messages });
    await until(() => backend.live === 2);
    await new Promise((resolve) => setTimeout(resolve, 100));
    await app.close();
    const { chunks, done } = parseStream((await stream.response).body);
    expect(done).toBe(false);
    expect(chunks.at(-1)!.error!.code).toBe("engine_closed");
    expect((await whole.response).status).toBe(503);
    expect(backend.live).toBe(0);
  }, 20_000);
});
