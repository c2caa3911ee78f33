// What POST /v1/chat/completions rejects: known fields that are out of range or not served, by their path.
import { afterEach, beforeEach, expect, test } from "vitest";
import { buildServer } from "../../src/server/app.ts";
import { ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";

let backend: ScriptedBackend;
let app: ReturnType<typeof buildServer>;

beforeEach(() => {
  backend = new ScriptedBackend();
  app = buildServer(backend, serverOptions);
});
afterEach(() => app.close());

const hello = { model: "tiny", messages: [{ role: "user", content: "Hi" }] };

const image = { type: "image_url", image_url: { url: "data:" } };
const refused: [string, object, string][] = [
  ["a missing list of messages", { messages: undefined }, "messages"],
  ["an empty list of messages", { messages: [] }, "messages"],
  ["an unknown role", { messages: [{ role: "robot", content: "x" }] }, "messages.0.role"],
  ["content of a wrong type", { messages: [{ role: "user", content: 5 }] }, "messages.0.content"],
  [
    "an image",
    { messages: [{ role: "user", content: [{ type: "text", text: "a" }, image] }] },
    "messages.0.content.1.type",
  ],
  [
    "tool calls of a user",
    { messages: [{ role: "user", content: "", tool_calls: [{ function: { name: "f" } }] }] },
    "messages.0.tool_calls",
  ],
  ["negative max_tokens", { max_tokens: -1 }, "max_tokens"],
  ["zero max_tokens", { max_tokens: 0 }, "max_tokens"],
  ["fractional max_completion_tokens", { max_completion_tokens: 1.5 }, "max_completion_tokens"],
  ["a temperature over 2", { temperature: 2.1 }, "temperature"],
  ["a negative temperature", { temperature: -0.1 }, "temperature"],
  ["a temperature in words", { temperature: "hot" }, "temperature"],
  ["top_p of 0", { top_p: 0 }, "top_p"],
  ["top_p over 1", { top_p: 1.01 }, "top_p"],
  ["top_k under -1", { top_k: -2 }, "top_k"],
  ["a penalty out of range", { presence_penalty: 3 }, "presence_penalty"],
  ["an absurd seed", { seed: 1e300 }, "seed"],
  ["17 stop strings", { stop: Array.from({ length: 17 }, String) }, "stop"],
  ["an empty stop string", { stop: "" }, "stop"],
  ["n of 2", { n: 2 }, "n"],
  ["n of 0", { n: 0 }, "n"],
  ["a logit bias", { logit_bias: { "5": 1 } }, "logit_bias"],
  ["top_logprobs over 20", { logprobs: true, top_logprobs: 21 }, "top_logprobs"],
  ["top_logprobs without logprobs", { top_logprobs: 2 }, "top_logprobs"],
  [
    "a schema for the answer",
    { response_format: { type: "json_schema", json_schema: {} } },
    "response_format.json_schema.schema",
  ],
  ["an answer in another format", { response_format: { type: "grammar" } }, "response_format.type"],
  ["a choice that is none", { tool_choice: "any" }, "tool_choice"],
  [
    "a choice of a tool that was not offered",
    {
      tools: [{ type: "function", function: { name: "f" } }],
      tool_choice: { type: "function", function: { name: "g" } },
    },
    "tool_choice.function.name",
  ],
  [
    "allowed tools that were not offered",
    {
      tools: [{ type: "function", function: { name: "f" } }],
      tool_choice: {
        type: "allowed_tools",
        allowed_tools: { mode: "auto", tools: [{ type: "function", function: { name: "g" } }] },
      },
    },
    "tool_choice",
  ],
  ["a forced tool without tools", { tool_choice: "required" }, "tool_choice"],
  ["a stream that is no boolean", { stream: "yes" }, "stream"],
  ["an unknown reuse", { pocket: { reuse: "all" } }, "pocket.reuse"],
  ["a repair of 0", { pocket: { repair: 0 } }, "pocket.repair"],
  ["a misspelt pocket key", { pocket: { sesion: "x" } }, "pocket"],
];

test.each(refused)("%s is refused by its field, before any compute", async (_name, change, param) => {
  for (const stream of [false, true]) {
    const response = await app.inject({
      method: "POST",
      url: "/v1/chat/completions",
      payload: { ...hello, stream, ...change },
    });
    expect(response.statusCode).toBe(400);
    expect(response.json().error).toMatchObject({
      param,
      code: "bad_request",
      type: "invalid_request_error",
    });
    expect(response.json().error.message).toContain(param);
  }
  expect(backend.asked).toHaveLength(0);
});

test("tools are refused where the template has no place for them, unless tool_choice says none", async () => {
  backend.model = { ...backend.model, takesTools: false };
  const tools = [{ type: "function", function: { name: "f" } }];
  const post = (change: object) =>
    app.inject({ method: "POST", url: "/v1/chat/completions", payload: { ...hello, tools, ...change } });
  const response = await post({});
  expect([response.statusCode, response.json().error.param]).toEqual([400, "tools"]);
  expect((await post({ tool_choice: "none" })).statusCode).toBe(200);
});
