// What a compaction costs on the local session: the compressor's call is a fork that computes only its
// instruction, and the agent's next request computes the memory and the new messages.
import { expect, test } from "vitest";
import { catalogMessage } from "../../src/context/catalog.ts";
import { compactBlock } from "../../src/context/compact.ts";
import { Compressor } from "../../src/context/compressor.ts";
import { expandBlock } from "../../src/context/expand.ts";
import { conversationOf } from "../support/fake-chat.ts";
import { ask, localChat, long, says, system, user } from "../support/fake-engine-chat.ts";

/** An agent's conversation of eight exchanges on a local session. */
function scene(...answers: string[]) {
  const { chat } = localChat(says(...answers), { context: 32_768 });
  const tokensOf = (messages: Parameters<typeof chat.applyTemplate>[0]) =>
    chat.applyTemplate(messages).tokens.length;
  const bare = tokensOf([user("")]);
  const conversation = conversationOf({
    instructions: [system],
    count: (message) => tokensOf([message]) - bare + 5,
  });
  conversation.request(user("Find the answer."));
  for (let number = 1; number <= 8; number++) {
    const toolCalls = [{ id: `c${number}`, name: "read", arguments: `{"file":${number}}` }];
    conversation.exchange([
      { role: "assistant", content: `I read ${number}.`, toolCalls },
      { role: "tool", content: long(`file ${number}`), toolCallId: `c${number}` },
    ]);
  }
  const { history } = conversation;
  const request = () => [
    ...history.messages(),
    catalogMessage(history, { used: history.tokens, limit: 32_768 }),
  ];
  return { chat, tokensOf, conversation, history, request };
}

test("the compressor computes only its instruction, the agent only the memory and its new turn", async () => {
  const { chat, tokensOf, conversation, history, request } = scene(
    "I look.",
    "Read: nothing of note.",
    "I go on.",
  );
  await ask(chat, { messages: request() });

  const before = history.messages();
  const compressor = new Compressor({ chat });
  const { done, finishes, text } = await compactBlock('{"start":"b002","end":"b004"}', {
    conversation,
    compressor,
    limit: 32_768,
  });
  expect(done, text).toBeDefined();
  // Through b004: system, request, and two messages for each exchange.
  const through = before.slice(0, 2 + 2 * 4);
  const { cacheUsage, promptTokens } = finishes[0]!;
  expect(cacheUsage.relocated).toBe(0);
  expect(cacheUsage.kept).toBeGreaterThanOrEqual(tokensOf(through) - tokensOf([]) - 1);
  expect(cacheUsage.computed).toBe(promptTokens - cacheUsage.kept);

  const next = await ask(chat, { messages: request() });
  const survivors = history.blocks.slice(3).reduce((sum, { tokens }) => sum + tokens, 0);
  expect(next.cacheUsage.relocated).toBeGreaterThan(0.9 * survivors);
  const fresh = tokensOf([done!.memory.message]) + tokensOf(request().slice(-1));
  expect(next.cacheUsage.computed).toBeLessThanOrEqual(fresh);
});

test("in a named session a second compaction and an expansion compute only new tokens, with approximate cells", async () => {
  const answers = [
    "I look.",
    "Read: nothing of note.",
    "I go on.",
    "Nothing there either.",
    "I go on.",
    "So.",
  ];
  const { chat, tokensOf, conversation, history, request } = scene(...answers);
  const agent = () => ask(chat, { messages: request(), session: "agent" });
  const compressor = new Compressor({ chat, answer: { session: "agent" } });
  const compact = async (range: string) => {
    const limit = 32_768;
    const { done, finishes, text } = await compactBlock(range, { conversation, compressor, limit });
    expect(done, text).toBeDefined();
    return finishes[0]!;
  };
  await agent();
  await compact('{"start":"b002","end":"b003"}');
  const edited = await agent();
  expect(edited.cacheUsage.stale).toBeGreaterThan(1000);
  const before = chat.inspect("agent");
  const { cacheUsage } = await compact('{"start":"b005","end":"b006"}');
  expect(cacheUsage.stale).toBeGreaterThan(300);
  // Only the instruction is new.
  expect(cacheUsage.computed).toBeLessThan(tokensOf([user("x".repeat(1200))]));
  expect(chat.inspect("agent")).toEqual(before);
  await agent();
  const { done } = expandBlock('{"tag":"ctx-0001"}', { conversation, limit: 32_768, pending: 0 });
  const copies = done!.apply().reduce((sum, { tokens }) => sum + tokens, 0);
  expect(history.blocks.at(-1)!.kind).toBe("exchange");
  const expanded = await agent();
  expect(expanded.cacheUsage.relocated).toBeGreaterThan(copies);
  expect(expanded.cacheUsage.computed).toBeLessThanOrEqual(tokensOf(request().slice(-1)) + 32);
});
