// Tool calls from tokens to events on the scripted engine: the order of events, finish reasons, and that the next turn
// finds an answer's cells although the template spells calls differently from the model.
import { describe, expect, it } from "vitest";
import type { ChatEvent, ChatRequest, Tool, ToolCall } from "../../src/chat/chat.ts";
import { collect, localChat, says, user } from "../support/fake-engine-chat.ts";
import { chatml, smallText } from "../support/small-tokenizer.ts";

const tools: Tool[] = [
  { name: "ls", parameters: { type: "object", properties: { path: { type: "string" } } } },
];
const template = chatml.replace(
  "message['content'] + ",
  "message['content'] + (message['tool_calls'] | tojson if message['tool_calls'] else '') + ",
);
const tagged = (given: string) => `<tool_call>\n{"name": "ls", "arguments": ${given}}\n</tool_call>`;

function toolChat(...answers: string[]) {
  return localChat(says(...answers), smallText(template));
}

async function ask(chat: ReturnType<typeof toolChat>["chat"], request: Partial<ChatRequest>) {
  const events = await collect(chat.chat({ messages: [user("x")], tools, ...request }));
  const finished = events.at(-1) as ChatEvent & { type: "answer-finished" };
  const text = events.map((event) => (event.type === "text-delta" ? event.text : "")).join("");
  const calls = events.flatMap((event) => (event.type === "tool-call" ? [event.call] : []));
  const streamed: ToolCall[] = [];
  for (const event of events) {
    if (event.type === "tool-call-start") streamed[event.index] = { ...event, arguments: "" };
    if (event.type === "tool-call-delta") {
      const call = streamed[event.index]!;
      streamed[event.index] = { ...call, arguments: call.arguments + event.arguments };
    }
  }
  const plain = streamed.map(({ id, name, arguments: given }) => ({ id, name, arguments: given }));
  return { text, calls, streamed: plain, ...finished };
}

describe("an answer with tools", () => {
  it("emits each call as start, deltas and whole, with the same arguments and its own id", async () => {
    const { chat } = toolChat(`Wait.\n${tagged('{"path": "a"}')}\n${tagged("{}")}`);
    const { text, calls, streamed, reason } = await ask(chat, {});
    expect(text).toBe("Wait.");
    expect(calls.map(({ name, arguments: given }) => [name, given])).toEqual([
      ["ls", '{"path": "a"}'],
      ["ls", "{}"],
    ]);
    expect(streamed).toEqual(calls);
    expect(new Set(calls.map(({ id }) => id)).size).toBe(2);
    for (const { id } of calls) expect(id).toMatch(/^call_[0-9a-f]{24}$/);
    expect(reason).toBe("tool_calls");
  });

  it("is plain text when no tools were offered", async () => {
    const { chat } = toolChat(tagged("{}"));
    const { text, calls, reason } = await ask(chat, { tools: [] });
    expect([text, calls, reason]).toEqual([tagged("{}"), [], "stop"]);
  });

  it("ends with length wherever the limit cuts a call, and never fails", async () => {
    const answer = tagged('{"path": "a"}');
    for (let maxTokens = 1; maxTokens < answer.length; maxTokens++) {
      const { chat } = toolChat(answer);
      const { reason, streamed, text } = await ask(chat, { maxTokens });
      expect(reason).toBe("length");
      if (streamed.length > 0) expect(answer).toContain(streamed[0]!.arguments);
      else expect(answer.startsWith(text)).toBe(true);
    }
    const { chat } = toolChat('<tool_call>{"name":"ls","arguments":{"a":');
    expect(await ask(chat, {})).toMatchObject({ reason: "length", calls: [], text: "" });
  });

  it("is cut by a stop string, also inside a call", async () => {
    const { chat } = toolChat(`Look ${tagged('{"path": "END"}')}`);
    const cut = await ask(chat, { stop: ["END"] });
    expect(cut).toMatchObject({ text: "Look", calls: [], reason: "length" });
    expect(cut.streamed[0]!.arguments).toBe('{"path": "');
  });

  it("ends after one call if only one is wanted, and the session stays consistent", async () => {
    const { chat, engine } = toolChat(`${tagged("{}")}\n${tagged("{}")} and more`);
    const { calls, reason } = await ask(chat, { parallelToolCalls: false });
    expect([calls.length, reason]).toEqual([1, "tool_calls"]);
    expect([...engine.sequences][0]!.length).toBe(chat.list()[0]!.tokens);
  });

  it("has logprobs for its content only, each token once", async () => {
    const { chat } = toolChat(`Wait.${tagged("{}")}`);
    const events = await collect(chat.chat({ messages: [user("x")], tools, topLogprobs: 0 }));
    const said = events.flatMap((event) => (event.type === "text-delta" ? (event.logprobs ?? []) : []));
    expect(said.map(({ token }) => token).join("")).toBe("Wait.");
  });
});

describe("the next turn", () => {
  const first = `Wait.\n${tagged('{"path":   "a"}')}`;
  const again = async (change: (call: ToolCall) => ToolCall, content = "Wait.") => {
    const { chat } = toolChat(first, "done");
    const one = await ask(chat, {});
    const messages = [
      user("x"),
      { role: "assistant" as const, content, toolCalls: one.calls.map(change) },
      { role: "tool" as const, content: "a b c", toolCallId: one.calls[0]!.id },
    ];
    const two = await ask(chat, { messages });
    return { kept: two.cacheUsage.kept, answered: one.promptTokens + one.completionTokens };
  };

  it("reuses the cells of the whole answer when the client sends the call back", async () => {
    const { kept, answered } = await again((call) => call);
    expect(kept).toBeGreaterThanOrEqual(answered - 1);
  });

  it("reuses them when the client reformatted the arguments, changed the call id or trimmed the content", async () => {
    const rewritten = (call: ToolCall) => ({
      ...call,
      id: "1",
      arguments: JSON.stringify(JSON.parse(call.arguments)),
    });
    const { kept, answered } = await again(rewritten, " Wait. ");
    expect(kept).toBeGreaterThanOrEqual(answered - 1);
  });

  it("computes a call that the client has changed", async () => {
    const { kept, answered } = await again((call) => ({ ...call, arguments: '{"path":"b"}' }));
    expect(kept).toBeLessThan(answered - 10);
  });

  it("is served with arguments that are not JSON", async () => {
    const { chat } = toolChat("done");
    const call = { id: "1", name: "ls", arguments: '{"a":' };
    const messages = [user("x"), { role: "assistant" as const, content: "", toolCalls: [call] }];
    expect(await ask(chat, { messages })).toMatchObject({ text: "done", reason: "stop" });
  });
});

describe("a constrained answer", () => {
  const object = { type: "object", properties: { n: { enum: [1, 2] } }, required: ["n"] };

  it("matches its schema, whatever the model prefers", async () => {
    const { chat } = localChat((tokens) => (tokens.length * 37) % 250);
    const format = { type: "json_schema" as const, schema: object, strict: true };
    const { text, reason } = await ask(chat, { tools: [], format });
    expect([1, 2]).toContain((JSON.parse(text) as { n: number }).n);
    expect(reason).toBe("stop");
    await chat.close();
  });

  it("is a call of one of the offered tools, or of the named one, if a call is forced", async () => {
    const offered = [
      { name: "a", parameters: object },
      { name: "b", parameters: object },
    ];
    for (const toolChoice of ["required" as const, { name: "b" }]) {
      const { chat } = localChat((tokens) => (tokens.length * 37) % 250);
      const { calls, reason } = await ask(chat, { tools: offered, toolChoice, parallelToolCalls: false });
      expect(calls).toHaveLength(1);
      expect(toolChoice === "required" ? ["a", "b"] : ["b"]).toContain(calls[0]!.name);
      expect([1, 2]).toContain((JSON.parse(calls[0]!.arguments) as { n: number }).n);
      expect(reason).toBe("tool_calls");
      await chat.close();
    }
  });

  it("with a strict tool matches its schema once a call begins, and is free before", async () => {
    const { chat } = toolChat('Well. <tool_call>\n{"name": "a", "arguments": {"n": 7}}\n</tool_call>');
    const { text, calls } = await ask(chat, { tools: [{ name: "a", parameters: object, strict: true }] });
    expect(text).toMatch(/^Well\./);
    expect([1, 2]).toContain((JSON.parse(calls[0]!.arguments) as { n: number }).n);
    await chat.close();
  });

  it("is refused by path for an unsupported strict schema, and unconstrained for one that is not strict", async () => {
    const schema = { type: "object", properties: { a: { type: "strange" } } };
    const { chat, engine } = toolChat('{"a": 1}', tagged("{}"));
    const asked = (strict: boolean) =>
      ask(chat, { tools: [], format: { type: "json_schema", schema, strict } });
    await expect(asked(true)).rejects.toMatchObject({
      code: "BAD_SCHEMA",
      param: "response_format.json_schema.schema.properties.a.type",
    });
    expect(engine.jobs).toHaveLength(0);
    expect((await asked(false)).text).toBe('{"a": 1}');
    const strict = ask(chat, { tools: [{ name: "ls", parameters: schema, strict: true }] });
    await expect(strict).rejects.toMatchObject({
      code: "BAD_SCHEMA",
      param: "tools.0.function.parameters.properties.a.type",
    });
    const loose = await ask(chat, { tools: [{ name: "ls", parameters: schema }], toolChoice: "required" });
    expect(loose.calls[0]!.name).toBe("ls");
    await chat.close();
  });
});
