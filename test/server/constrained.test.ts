// Constrained answers on the tiny model, whose weights are random: what it says fits only because it must. Masks go
// through the addon, several grammars in one batch.
import type { ChatCompletion, ChatCompletionTool } from "openai/resources/chat/completions";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTinyServer, type TinyServer } from "../support/tiny-server.ts";

let server: TinyServer;
beforeAll(async () => {
  server = await startTinyServer();
});
afterAll(() => server?.close());

const schema = {
  type: "object",
  properties: {
    size: { enum: ["small", "large"] },
    count: { type: "integer", minimum: 0, maximum: 99 },
    flags: { type: "array", items: { type: "boolean" }, minItems: 1, maxItems: 3 },
  },
  required: ["size", "count", "flags"],
  additionalProperties: false,
};
const tools: ChatCompletionTool[] = ["order", "cancel"].map((name) => ({
  type: "function",
  function: { name, parameters: schema },
}));
const base = { model: "tiny", temperature: 1, max_tokens: 400 };
const messages = [{ role: "user" as const, content: "Two, please." }];

function expectFit(text: string): void {
  const { size, count, flags, ...others } = JSON.parse(text) as Record<string, unknown>;
  expect(["small", "large"]).toContain(size);
  expect(Number.isInteger(count)).toBe(true);
  expect((flags as unknown[]).every((flag) => typeof flag === "boolean")).toBe(true);
  expect(others).toEqual({});
}

test("response_format json_schema is kept to, at every seed, streamed or not", async () => {
  const response_format = { type: "json_schema" as const, json_schema: { name: "o", schema, strict: true } };
  for (let seed = 0; seed < 5; seed++) {
    const body = { ...base, messages, seed, response_format };
    const { choices } = await server.client.chat.completions.create(body);
    expect(choices[0]!.finish_reason).toBe("stop");
    expectFit(choices[0]!.message.content!);
    const again = await server.client.chat.completions.stream(body).finalChatCompletion();
    expect(again.choices[0]!.message.content).toBe(choices[0]!.message.content);
  }
});

test("tool_choice required gives calls of the tools offered and nothing else, a named one that tool", async () => {
  const named = { type: "function" as const, function: { name: "cancel" } };
  for (let seed = 0; seed < 4; seed++) {
    for (const tool_choice of ["required" as const, named]) {
      const body = { ...base, messages, seed, tools, tool_choice, parallel_tool_calls: false };
      const { choices } = await server.client.chat.completions.create(body);
      const { message, finish_reason } = choices[0]!;
      expect([finish_reason, message.content, message.tool_calls?.length]).toEqual(["tool_calls", null, 1]);
      const { name, arguments: given } = (
        message.tool_calls![0] as { function: { name: string; arguments: string } }
      ).function;
      expect(tool_choice === named ? ["cancel"] : ["order", "cancel"]).toContain(name);
      expectFit(given);
    }
  }
});

test("answers with different grammars and none share the batch and do not mix", async () => {
  const create = (body: object) =>
    server.client.chat.completions.create({ ...base, messages, ...body }) as Promise<ChatCompletion>;
  const response_format = { type: "json_schema", json_schema: { name: "o", schema, strict: true } };
  const forced = { tools, tool_choice: "required", parallel_tool_calls: false };
  const free = { max_tokens: 100, seed: 3 };
  const [said, form, other, call] = await Promise.all([
    create(free),
    create({ seed: 1, response_format }),
    create({ seed: 2, response_format }),
    create({ seed: 9, ...forced }),
  ]);
  expectFit(form.choices[0]!.message.content!);
  expectFit(other.choices[0]!.message.content!);
  expect(call.choices[0]!.finish_reason).toBe("tool_calls");
  const alone = await create({ ...free, pocket: { reuse: "none" } });
  expect(said.choices[0]!.message.content).toBe(alone.choices[0]!.message.content);
});

test("the turn after a forced call finds its cells, although the template writes calls otherwise", async () => {
  const body = {
    ...base,
    messages,
    tools,
    tool_choice: "required" as const,
    seed: 5,
    parallel_tool_calls: false,
  };
  const one = await server.client.chat.completions.create(body);
  const call = one.choices[0]!.message.tool_calls![0]!;
  const two = await server.client.chat.completions.create({
    ...base,
    messages: [
      ...messages,
      one.choices[0]!.message,
      { role: "tool", tool_call_id: call.id, content: "Done." },
    ],
    tools,
    max_tokens: 2,
  });
  const spoken = one.usage!.prompt_tokens + one.usage!.completion_tokens;
  expect(two.usage!.prompt_tokens_details!.cached_tokens).toBeGreaterThanOrEqual(spoken - 4);
});

test("a strict schema that cannot be had is refused by its path before anything is computed", async () => {
  const strange = { type: "object", properties: { a: { $ref: "#/$defs/none" } } };
  const asked = server.client.chat.completions.create({
    ...base,
    messages,
    response_format: { type: "json_schema", json_schema: { name: "o", schema: strange, strict: true } },
  });
  await expect(asked).rejects.toMatchObject({
    status: 400,
    code: "bad_schema",
    param: "response_format.json_schema.schema.properties.a.$ref",
  });
});

test("response_format together with tools gives JSON that fits or calls that fit, and nothing else", async () => {
  const response_format = { type: "json_schema" as const, json_schema: { name: "o", schema, strict: true } };
  const strict = tools.map((tool) =>
    tool.type === "function" ? { ...tool, function: { ...tool.function, strict: true } } : tool,
  );
  for (let seed = 0; seed < 6; seed++) {
    const body = { ...base, messages, seed, tools: strict, response_format, parallel_tool_calls: false };
    const { choices } = await server.client.chat.completions.create(body);
    const { message, finish_reason } = choices[0]!;
    const calls = message.tool_calls ?? [];
    if (calls.length === 0) {
      expect(finish_reason).toBe("stop");
      expectFit(message.content!);
      continue;
    }
    expect([finish_reason, message.content]).toEqual(["tool_calls", null]);
    for (const call of calls) expectFit((call as { function: { arguments: string } }).function.arguments);
  }
});

test("allowed_tools leaves the others in the prompt and out of reach", async () => {
  const only = { type: "function", function: { name: "cancel" } };
  const create = (tool_choice: object | string) =>
    server.client.chat.completions.create({
      ...base,
      messages,
      tools,
      tool_choice,
      seed: 2,
      parallel_tool_calls: false,
      // biome-ignore lint/suspicious/noExplicitAny: a shape that the package's types do not have everywhere
    } as any) as Promise<ChatCompletion>;
  const all = await create("required");
  const some = await create({ type: "allowed_tools", allowed_tools: { mode: "required", tools: [only] } });
  expect(some.usage!.prompt_tokens).toBe(all.usage!.prompt_tokens);
  const calls = some.choices[0]!.message.tool_calls!;
  expect(calls.map((call) => (call as { function: { name: string } }).function.name)).toEqual(["cancel"]);
});

test("a schema without strict is relaxed, and the answer says so", async () => {
  const strange = { type: "object", properties: { a: { $ref: "#/$defs/none" } } };
  const long = { type: "object", properties: { a: { type: "string", maxLength: 5000 } }, required: ["a"] };
  const create = async (schema: object) => {
    const response_format = { type: "json_schema", json_schema: { name: "o", schema } };
    const body = { ...base, messages, max_tokens: 30, seed: 1, response_format };
    // biome-ignore lint/suspicious/noExplicitAny: `pocket` is ours
    return (await server.client.chat.completions.create(body as any)) as any;
  };
  expect((await create(strange)).pocket.warnings).toEqual([
    'The schema in response_format.json_schema.schema.properties.a.$ref is not enforced as it stands: "#/$defs/none" is not in the schema. Any JSON object was allowed there.',
  ]);
  expect((await create(long)).pocket.warnings).toEqual([
    expect.stringMatching(/properties\.a\.maxLength are ignored\. The rest of it is enforced\.$/),
  ]);
  expect((await create(schema)).pocket).not.toHaveProperty("warnings");
});
