import { describe, expect, test } from "vitest";
import type { ChatRequest, Message, ToolCall } from "../../src/chat/chat.ts";
import { pocketError } from "../../src/errors.ts";
import type { AgentEvent } from "../../src/harness/events.ts";
import { finalNotice, limitsOf } from "../../src/harness/limits.ts";
import { AgentLoop, type AgentOptions } from "../../src/harness/loop.ts";
import { pocketContext } from "../../src/harness/policies/pocket-context.ts";
import { react } from "../../src/harness/policies/react.ts";
import type { AgentTool } from "../../src/harness/tool.ts";
import { conversationOf, type Line, type Script, ScriptedChat } from "../support/fake-chat.ts";

const call = (name: string, given: object, id = name): ToolCall => ({
  id,
  name,
  arguments: JSON.stringify(given),
});

/** Returns `size` characters. */
const read: AgentTool = {
  spec: { name: "read", description: "Reads." },
  run: async (json) => `${json} ${"x".repeat(JSON.parse(json).size)}`,
};

function agent(script: Script, options: Partial<AgentOptions> = {}) {
  const chat = new ScriptedChat(script);
  const conversation = conversationOf();
  conversation.request({ role: "user", content: "Find the answer." });
  const events: AgentEvent[] = [];
  const loop = new AgentLoop({
    chat,
    policy: react,
    conversation,
    tools: [read],
    limits: limitsOf(100_000),
    onEvent: (event) => events.push(event),
    ...options,
  });
  return { chat, conversation, events, loop };
}

/** Another file each time. */
let files = 0;
const reads =
  (size: number, text = "I read.") =>
  (): Line => ({ text, calls: [call("read", { size, file: ++files })] });
const last = (request: ChatRequest | undefined) => request!.messages.at(-1)!;

describe("the loop", () => {
  test("runs the calls of each answer in order and ends with the first answer that has none", async () => {
    const script = [
      { text: "Two files.", calls: [call("read", { size: 1 }, "1"), call("read", { size: 2 }, "2")] },
      { text: "The answer is 4." },
    ];
    const { chat, conversation, events, loop } = agent(script);
    const { outcome, answer, usage } = await loop.run();
    expect([outcome, answer]).toEqual(["answered", "The answer is 4."]);
    expect(chat.requests[1]!.messages.slice(2)).toEqual([
      { role: "assistant", content: "Two files.", toolCalls: script[0]!.calls },
      { role: "tool", content: '{"size":1} x', toolCallId: "1", name: "read" },
      { role: "tool", content: '{"size":2} xx', toolCallId: "2", name: "read" },
    ]);
    expect(conversation.history.blocks.map(({ id }) => id)).toEqual(["r001", "b001", "b002"]);
    expect(usage.agent).toMatchObject({ calls: 2, kept: 0, relocated: 0 });
    expect(usage.peakInput).toBe(usage.agent.promptTokens - 53);
    expect(events.map(({ type }) => type).filter((type) => type !== "text-delta")).toEqual([
      ...["turn-started", "answer-finished", "tool-called", "tool-returned", "tool-called", "tool-returned"],
      ...["block-appended", "turn-started", "answer-finished", "block-appended", "run-finished"],
    ]);
  });

  test("does not return the same result of the same call twice in a row, and says what to do", async () => {
    const again = { calls: [call("read", { size: 9 })] };
    const { chat, loop } = agent([again, again, again, reads(5)(), again, { text: "Done." }]);
    await loop.run();
    const results = chat.requests.at(-1)!.messages.filter(({ role }) => role === "tool");
    const texts = results.map(({ content }) => content);
    const repeated = /very call of read before.* other arguments/;
    expect(texts[0]).toBe('{"size":9} xxxxxxxxx');
    expect(texts.map((text) => repeated.test(text))).toEqual([false, true, true, false, false]);
    expect(texts[4]).toBe(texts[0]);
  });

  test("tells the model about unknown tools and failures of tools", async () => {
    const broken: AgentTool = {
      spec: { name: "broken" },
      run: async () => {
        throw new Error("disk on fire");
      },
    };
    const calls = [call("none", {}), call("broken", {}), { id: "3", name: "read", arguments: "{" }];
    const { chat, loop } = agent([{ calls }, { text: "Done." }], { tools: [read, broken] });
    await loop.run();
    const results = chat.requests[1]!.messages.slice(3).map(({ content }) => content);
    expect(results[0]).toBe("There is no tool 'none'. Tools of the workspace: read, broken.");
    expect(results[1]).toBe("broken failed: disk on fire");
    expect(results[2]).toMatch(/^read failed: .*JSON/);
  });

  test.each([
    ["was cut off for its length", { text: "And so", reason: "length" }],
    ["was empty", { text: "" }],
  ] as const)("asks again when an answer %s, and keeps neither it nor the notice", async (why, line) => {
    const { chat, conversation, loop } = agent([line, { text: "Done." }]);
    expect((await loop.run()).outcome).toBe("answered");
    expect(last(chat.requests[1]).content).toContain(why);
    expect(conversation.history.messages().map(({ content }) => content)).toEqual([
      "You are an agent.",
      "Find the answer.",
      "Done.",
    ]);
  });

  test("demands the final answer after two unusable answers in a row", async () => {
    const { chat, loop } = agent([{ text: "" }, { text: "" }, { text: "Perhaps 4." }]);
    expect(await loop.run()).toMatchObject({ outcome: "forced", answer: "Perhaps 4." });
    expect(last(chat.requests[2])).toEqual(finalNotice);
  });

  test("demands the final answer in the last turn, and does not run its calls", async () => {
    const { chat, loop, conversation } = agent(reads(10), { limits: limitsOf(100_000, { maxTurns: 4 }) });
    expect(await loop.run()).toMatchObject({ outcome: "forced", answer: "I read." });
    expect(chat.requests).toHaveLength(4);
    expect(last(chat.requests[3])).toEqual(finalNotice);
    expect(conversation.history.blocks).toHaveLength(5);
    expect(conversation.history.messages().at(-1)).toEqual({ role: "assistant", content: "I read." });
  });

  test("demands the final answer at 95 % of the window, and never asks for more than the window", async () => {
    const { chat, loop } = agent(reads(700), { limits: limitsOf(5000) });
    expect((await loop.run()).outcome).toBe("forced");
    expect(last(chat.requests.at(-1))).toEqual(finalNotice);
    const sizes = chat.requests.map(({ messages, maxTokens }) => {
      const content = messages.reduce((sum, message) => sum + message.content.length, 0);
      return content + maxTokens!;
    });
    expect(Math.max(...sizes)).toBeLessThanOrEqual(5000);
  });

  test("does not add a result that does not fit in the window", async () => {
    const { chat, loop } = agent([reads(9000)(), { text: "Too large." }], { limits: limitsOf(5000) });
    expect((await loop.run()).outcome).toBe("answered");
    expect(last(chat.requests[1]).content).toMatch(
      /^The result of read has about 90\d\d tokens and \d+ are left/,
    );
  });

  test("ends with the last text when the server says that the prompt is too long", async () => {
    const error = pocketError("CONTEXT_LENGTH_EXCEEDED", 10, 20, "12 in the messages");
    const { loop } = agent([reads(10, "I think it is 4.")(), { error }]);
    expect(await loop.run()).toMatchObject({ outcome: "overflow", answer: "I think it is 4." });
  });

  test("rejects with other errors, and continues from the complete exchanges when it is run again", async () => {
    const { conversation, loop } = agent([reads(10)(), { error: pocketError("ENGINE_CLOSED") }]);
    await expect(loop.run()).rejects.toThrow("The engine is closed.");
    expect(conversation.history.blocks.map(({ id }) => id)).toEqual(["r001", "b001"]);
    const again = agent([{ text: "Done." }], { conversation });
    expect((await again.loop.run()).answer).toBe("Done.");
    expect(again.chat.requests[0]!.messages).toHaveLength(4);
  });

  test("stops on abort during a tool call, without an incomplete exchange", async () => {
    const controller = new AbortController();
    const slow: AgentTool = {
      spec: { name: "slow" },
      run: async () => {
        controller.abort(new Error("stopped by the user"));
        return "late";
      },
    };
    const { conversation, loop } = agent([{ calls: [call("slow", {})] }], {
      tools: [slow],
      signal: controller.signal,
    });
    await expect(loop.run()).rejects.toThrow("stopped by the user");
    expect(conversation.history.blocks.map(({ id }) => id)).toEqual(["r001"]);
  });
});

describe("the Pocket Context Agent", () => {
  const isCompressor = ({ messages }: ChatRequest) =>
    messages.at(-1)!.content.startsWith("Summarize, in your own words");

  /** The agent answers with `lines` in order, the compressor with `summary`. */
  function pca(lines: readonly Line[], options: Partial<AgentOptions> = {}, summary = "What was read.") {
    let turn = 0;
    const script = (request: ChatRequest): Line =>
      isCompressor(request) ? { text: summary } : (lines[turn++] ?? { text: "Done." });
    return agent(script, { policy: pocketContext, ...options });
  }

  const three = [reads(500)(), reads(500)(), reads(500)()];

  test("gets the catalog at the end of every request, and it is never stored", async () => {
    const { chat, conversation, loop } = pca(three);
    await loop.run();
    expect(chat.requests).toHaveLength(4);
    const isCatalog = ({ content }: Message) => content.startsWith("[context catalog]");
    for (const { messages } of chat.requests) {
      expect(messages.filter(isCatalog)).toEqual([messages.at(-1)]);
    }
    expect(last(chat.requests[3]).content).toMatch(
      /b001 exchange [\d,]+ tokens: read .*\nb002 .*\n[\d,]+ of 100,000/,
    );
    expect(conversation.history.messages().filter(isCatalog)).toEqual([]);
    expect(chat.requests[0]!.tools!.map(({ name }) => name)).toEqual([
      "compact_block",
      "expand_block",
      "read",
    ]);
  });

  test("compacts during a run: the next request has the memory at the position of the range", async () => {
    const { chat, events, loop } = pca([
      ...three,
      { calls: [call("compact_block", { start: "b001", end: "b002" })] },
    ]);
    const { usage } = await loop.run();
    const [compressor, next] = chat.requests.slice(-2) as [ChatRequest, ChatRequest];
    // The compressor gets the agent's messages through b002, with the same tools.
    expect(compressor.messages.slice(0, -1)).toEqual(chat.requests[2]!.messages.slice(0, -1));
    expect(compressor.tools).toEqual(next.tools);
    expect(next.messages.map(({ role }) => role)).toEqual([
      ...["system", "user", "user", "assistant", "tool", "assistant", "tool", "user"],
    ]);
    expect(next.messages[2]!.content).toBe("[memory ctx-0001 covers=b001-b002]\nWhat was read.");
    expect(next.messages[6]!.content).toContain("b001 to b002");
    expect(events.find(({ type }) => type === "block-compacted")).toMatchObject({
      memory: "b004",
      replaced: ["b001", "b002"],
    });
    expect([usage.agent.calls, usage.compressor.calls]).toEqual([5, 1]);
    expect(usage.compressor.promptTokens).toBeGreaterThan(1000);
  });

  test("calls the compressor on a fork of the agent's session", async () => {
    const lines = [...three, { calls: [call("compact_block", { start: "b001", end: "b002" })] }];
    const { chat, loop } = pca(lines, { answer: { session: "agent", temperature: 0 } });
    await loop.run();
    expect(chat.requests.map(({ session }) => session)).toEqual(Array(6).fill("agent"));
    const forks = chat.requests.map(({ fork }) => fork ?? false);
    expect(forks).toEqual([false, false, false, false, true, false]);
    expect(chat.requests.every(({ temperature }) => temperature === 0)).toBe(true);
  });

  test("expands: the copies follow the exchange with the call", async () => {
    const { chat, conversation, loop } = pca([
      ...three,
      { calls: [call("compact_block", { start: "b001", end: "b002" })] },
      { calls: [call("expand_block", { tag: "ctx-0001" })] },
    ]);
    await loop.run();
    const originals = chat.requests[2]!.messages.slice(2, -1);
    expect(last(chat.requests.at(-1)).content).toContain("[context catalog]");
    expect(chat.requests.at(-1)!.messages.slice(-1 - originals.length, -1)).toEqual(originals);
    expect(conversation.history.blocks.map(({ id }) => id)).toEqual([
      ...["r001", "b004", "b003", "b005", "b006", "b007", "b008", "b009"],
    ]);
  });

  test("cannot expand twice in one exchange beyond the window", async () => {
    const { chat, loop } = pca(
      [
        ...three,
        { calls: [call("compact_block", { start: "b001", end: "b002" })] },
        {
          calls: [
            call("expand_block", { tag: "ctx-0001" }, "1"),
            call("expand_block", { tag: "ctx-0001" }, "2"),
          ],
        },
      ],
      { limits: limitsOf(3300) },
    );
    await loop.run();
    const results = chat.requests.at(-1)!.messages.filter(({ name }) => name === "expand_block");
    expect(results.map(({ content }) => content)).toEqual([
      expect.stringContaining("follow at the end of the context"),
      expect.stringMatching(/^Nothing was expanded: .* are missing/),
    ]);
  });

  test("answers in a window in which ReAct is forced to stop", async () => {
    const limits = limitsOf(6000);
    const steps = Array.from({ length: 14 }, reads(500));
    const plain = agent(Object.assign([...steps, { text: "Done." }]), { limits });
    expect((await plain.loop.run()).outcome).toBe("forced");

    // Compacts the whole catalog whenever half of the window is in use.
    let left = steps.length;
    const script = (request: ChatRequest): Line => {
      if (isCompressor(request)) return { text: "What was read." };
      const catalog = last(request).content;
      const ids = [...catalog.matchAll(/^(b\d+) /gm)].map((match) => match[1]);
      const used = Number(/\((\d+) %\)/.exec(catalog)?.[1]);
      if (used > 50 && ids.length > 1) {
        return { calls: [call("compact_block", { start: ids[0], end: ids.at(-1) })] };
      }
      return left-- > 0 ? reads(500)() : { text: "Done." };
    };
    const { conversation, loop } = agent(script, { limits, policy: pocketContext });
    const { outcome, usage } = await loop.run();
    expect(outcome).toBe("answered");
    expect(conversation.archive.records.length).toBeGreaterThanOrEqual(2);
    expect(usage.peakInput).toBeLessThan(0.95 * limits.window);
  });
});
