import { describe, expect, test } from "vitest";
import { catalogMessage } from "../../src/context/catalog.ts";
import { compactBlock } from "../../src/context/compact.ts";
import { Compressor } from "../../src/context/compressor.ts";
import type { Conversation } from "../../src/context/conversation.ts";
import { expandBlock } from "../../src/context/expand.ts";
import { pocketError } from "../../src/errors.ts";
import { count, exchangeOf, filled, type Line, ScriptedChat, summarising } from "../support/fake-chat.ts";

async function refusal(json: string, conversation: Conversation, limit = 100_000): Promise<string> {
  const before = conversation.history.blocks;
  const chat = new ScriptedChat([]);
  const { text, done } = await compactBlock(json, {
    conversation,
    compressor: new Compressor({ chat }),
    limit,
  });
  expect(done).toBeUndefined();
  expect(conversation.history.blocks).toBe(before);
  expect(conversation.archive.tags).toEqual([]);
  return text;
}

describe("compact_block refuses, with the history unchanged,", () => {
  test.each([
    [
      "arguments that are not JSON",
      "{start",
      "The arguments are not JSON; they have the form {start, end, focus?}",
    ],
    ["arguments that are not an object", "[]", "must be an object of the form {start, end, focus?}"],
    ["a missing end", '{"start":"b001"}', "end must be text: {start, end, focus?}"],
    ["a focus that is not text", '{"start":"b001","end":"b002","focus":3}', "focus must be text"],
    [
      "an unknown block",
      '{"start":"b001","end":"b099"}',
      "there is no block 'b099'. Blocks that can be compacted, in order: b001, b002, b003.",
    ],
    ["a text that is not an id", '{"start":"1","end":"b002"}', "there is no block '1'"],
    ["the wrong order", '{"start":"b003","end":"b001"}', "b003 stands behind b001 in the current order"],
    [
      "the latest exchange",
      '{"start":"b003","end":"b004"}',
      "b004 is the latest exchange, which is protected",
    ],
    [
      "the latest request",
      '{"start":"r001","end":"b002"}',
      "r001 is the latest user request, which is protected",
    ],
  ])("%s", async (_, json, sentence) => {
    expect(await refusal(json, filled(4))).toContain(sentence);
  });

  test("a range with the latest request in its middle", async () => {
    const conversation = filled(4);
    conversation.request({ role: "user", content: "Another question." });
    for (const name of ["b005", "b006"]) conversation.exchange(exchangeOf(name));
    expect(await refusal('{"start":"b002","end":"b005"}', conversation)).toContain(
      "r002 is the latest user request",
    );
  });

  test("a range that is smaller than any memory, before the compressor is asked", async () => {
    const conversation = filled(1);
    conversation.exchange([{ role: "assistant", content: "Hm." }]);
    conversation.exchange(exchangeOf("b003"));
    expect(await refusal('{"start":"b002","end":"b002"}', conversation)).toMatch(
      /b002 to b002 have 13 tokens and the memory would have \d+, so nothing would be gained/,
    );
  });

  test("a range whose compressor call would overflow the window, with the numbers", async () => {
    const conversation = filled(4);
    const text = await refusal('{"start":"b001","end":"b003"}', conversation, 1200);
    expect(text).toMatch(/would read [\d,]+ tokens and needs 75 for its answer; the window has 1,200/);
  });

  test("a block that was archived, naming the tag", async () => {
    const conversation = filled(6);
    const options = { conversation, compressor: summarising(), limit: 100_000 };
    await compactBlock('{"start":"b001","end":"b003"}', options);
    const { text, done } = await compactBlock('{"start":"b002","end":"b004"}', options);
    expect(done).toBeUndefined();
    expect(text).toContain("b002 was compacted into ctx-0001; expand_block brings it back");
  });

  test("a summary that is as long as the range", async () => {
    const conversation = filled(4);
    const options = { conversation, compressor: summarising("y".repeat(2000)), limit: 100_000 };
    const { text, done, finishes } = await compactBlock('{"start":"b001","end":"b002"}', options);
    expect(done).toBeUndefined();
    expect(text).toMatch(/have \d+ tokens and the memory would have 2,0\d\d/);
    expect(finishes).toHaveLength(1);
    expect(conversation.archive.tags).toEqual([]);
  });

  test("if the cache is full; other errors are thrown", async () => {
    const run = (error: Error) => {
      const compressor = new Compressor({ chat: new ScriptedChat([{ error }]) });
      return compactBlock('{"start":"b001","end":"b002"}', {
        conversation: filled(4),
        compressor,
        limit: 100_000,
      });
    };
    expect((await run(pocketError("CACHE_FULL", 1, 16, 9))).text).toContain("The cache has 1 free pages");
    await expect(run(pocketError("ENGINE_CLOSED"))).rejects.toThrow("The engine is closed.");
    await expect(run(new TypeError("a bug"))).rejects.toThrow("a bug");
  });
});

describe("the compressor", () => {
  const answers = async (...script: Line[]) => {
    const chat = new ScriptedChat(script);
    const conversation = filled(6);
    const compressor = new Compressor({ chat, answer: { temperature: 0 } });
    const outcome = await compactBlock('{"start":"b002","end":"b004","focus":"the numbers"}', {
      conversation,
      compressor,
      limit: 100_000,
    });
    return { chat, conversation, ...outcome };
  };

  test("is sent the history through the last selected block, then one instruction", async () => {
    const { chat, done } = await answers({ text: "A summary." });
    const [request] = chat.requests;
    const messages = filled(6).history.messages();
    expect(request!.messages.slice(0, -1)).toEqual(messages.slice(0, 2 + 2 * 4));
    expect(request!.messages.at(-1)!.content).toContain('it begins with "read_file {"path":"b002"}"');
    expect(request!.messages.at(-1)!.content).toContain("the numbers");
    expect(request).toMatchObject({ temperature: 0, maxTokens: Math.floor(done!.tokens / 4) });
    expect(request!.tools).toBeUndefined();
  });

  test("leaves reasoning out of the summary", async () => {
    const { done } = await answers({ text: "<think>Hm, what?</think>\n\nA summary.\n" });
    expect(done!.record.summary).toBe("A summary.");
  });

  const bad: readonly (readonly [string, Line])[] = [
    ["was empty", { text: " \n" }],
    ["was empty", { text: "<think>and so on" }],
    ["did not end within", { text: "and so on", reason: "length" }],
    ["called a tool", { text: "", calls: [{ id: "1", name: "read_file", arguments: "{}" }] }],
    ["called a tool", { text: '<tool_call>{"name":"read_file"}</tool_call>' }],
  ];

  test.each(bad)("is asked once more when its answer %s", async (fault, line) => {
    const { chat, done, finishes } = await answers(line, { text: "A summary." });
    expect(done!.record.summary).toBe("A summary.");
    expect(finishes).toHaveLength(2);
    expect(chat.requests[1]!.messages.at(-1)!.content).toContain(`because it ${fault}`);
  });

  test.each(bad)(
    "is not asked a third time, and the history stays unchanged, when its answer %s twice",
    async (fault, line) => {
      const { chat, conversation, done, text, finishes } = await answers(line, line);
      expect(done).toBeUndefined();
      expect(chat.requests).toHaveLength(2);
      expect(finishes).toHaveLength(2);
      expect(text).toContain(fault);
      expect(conversation.history.blocks).toHaveLength(7);
      expect(conversation.archive.tags).toEqual([]);
    },
  );
});

describe("expand_block", () => {
  const compacted = async () => {
    const conversation = filled(6);
    await compactBlock('{"start":"b001","end":"b003"}', {
      conversation,
      compressor: summarising("Read. ".repeat(20)),
      limit: 100_000,
    });
    return conversation;
  };

  test("refuses an unknown tag and lists the known ones", async () => {
    const run = (tag: string, conversation: Conversation) =>
      expandBlock(JSON.stringify({ tag }), { conversation, limit: 100_000, pending: 0 });
    expect(run("ctx-0001", filled(3)).text).toContain(
      "there is no tag 'ctx-0001'. Nothing has been compacted yet.",
    );
    expect(run("ctx-9999", await compacted()).text).toContain("Tags: ctx-0001.");
    expect(run("constructor", await compacted()).text).toContain("there is no tag 'constructor'");
  });

  test("refuses an expansion that would overflow the window, with the numbers", async () => {
    const conversation = await compacted();
    const copies = 3 * exchangeOf("b001").reduce((sum, message) => sum + count(message), 0);
    const used = conversation.history.tokens + 50;
    const run = (limit: number) => expandBlock('{"tag":"ctx-0001"}', { conversation, limit, pending: 50 });
    expect(run(used + copies - 1).text).toContain("so 1 are missing");
    expect(run(used + copies - 1).done).toBeUndefined();
    expect(run(used + copies).done).toMatchObject({ tokens: copies });
  });

  test("changes nothing until it is applied; its copies are then protected for one exchange", async () => {
    const conversation = await compacted();
    const before = conversation.history.blocks;
    const { done } = expandBlock('{"tag":"ctx-0001"}', { conversation, limit: 100_000, pending: 0 });
    expect(conversation.history.blocks).toBe(before);
    conversation.exchange(exchangeOf("expand call"));
    done!.apply();
    const listed = () => catalogMessage(conversation.history, { used: 1, limit: 2 }).content;
    expect(listed()).not.toContain("copy of");
    conversation.exchange(exchangeOf("next"));
    expect(listed()).toContain("b009 exchange 254 tokens: copy of b001 (ctx-0001) read_file");
  });

  test("names the tags to expand instead for a memory of memories", async () => {
    const conversation = await compacted();
    const options = { conversation, compressor: summarising("Short."), limit: 100_000 };
    expect((await compactBlock('{"start":"b007","end":"b007"}', options)).done!.memory.refs).toEqual([
      "ctx-0001",
    ]);
    const { text, done } = expandBlock('{"tag":"ctx-0002"}', { conversation, limit: 100_000, pending: 0 });
    expect(done).toBeUndefined();
    expect(text).toContain("holds no messages of its own. Expand ctx-0001 instead.");
  });
});

describe("the catalog", () => {
  test("ends with the tokens in use, and says if no block can be compacted", () => {
    expect(catalogMessage(filled(1).history, { used: 500, limit: 2000 })).toEqual({
      role: "user",
      content: "[context catalog] No block can be compacted yet. 500 of 2,000 tokens are in use (25 %).",
    });
    const rows = catalogMessage(filled(3).history, { used: 1234567, limit: 2000000 }).content.split("\n");
    expect(rows[1]).toBe('b001 exchange 254 tokens: read_file {"path":"b001"}');
    expect(rows.at(-1)).toBe("1,234,567 of 2,000,000 tokens are in use (62 %).");
  });

  test("keeps each block on one line, cut between characters", () => {
    const conversation = filled(0);
    conversation.exchange([{ role: "assistant", content: `one\n[context catalog]\t${"🙂".repeat(100)}` }]);
    conversation.exchange(exchangeOf("b002"));
    const rows = catalogMessage(conversation.history, { used: 1, limit: 2 }).content.split("\n");
    expect(rows).toHaveLength(3);
    expect(rows[1]).toMatch(/^b001 exchange \d+ tokens: one \[context catalog\] (🙂)+…$/u);
  });
});

describe("a conversation refuses an exchange with", () => {
  const call = { id: "1", name: "ls", arguments: "{}" };
  test.each([
    ["no message", [], "begins with no message"],
    ["a user message", [{ role: "user", content: "" }], "begins with a user message"],
    [
      "a call without its result",
      [{ role: "assistant", content: "", toolCalls: [call] }],
      "lacks the results of 1",
    ],
    [
      "two results of one call",
      [
        { role: "assistant", content: "", toolCalls: [call] },
        { role: "tool", content: "", toolCallId: "1" },
        { role: "tool", content: "", toolCallId: "1" },
      ],
      "has a tool message for call '1'; open calls: none",
    ],
  ] as const)("%s", (_, messages, sentence) => {
    const conversation = filled(1);
    expect(() => conversation.exchange(messages)).toThrow(sentence);
    expect(conversation.history.blocks).toHaveLength(2);
  });
});
