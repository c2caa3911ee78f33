// What a compaction costs on the local session: the compressor's call is a fork that computes its instruction,
// and the agent's next request computes the memory and what is new. Nobody says "compact" to the session.
import { expect, test } from "vitest";
import { catalogMessage } from "../../src/context/catalog.ts";
import { compactBlock } from "../../src/context/compact.ts";
import { Compressor } from "../../src/context/compressor.ts";
import { conversationOf } from "../context/scripted-chat.ts";
import { ask, localChat, long, says, system, user } from "../session/local-chat.ts";

test("the compressor recomputes only its instruction, the agent only the memory and its new turn", async () => {
  const { chat } = localChat(says("I look.", "Read: nothing of note.", "I go on."), { context: 32_768 });
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
  const { bill, promptTokens } = finishes[0]!;
  expect(bill.relocated).toBe(0);
  expect(bill.kept).toBeGreaterThanOrEqual(tokensOf(through) - tokensOf([]) - 1);
  expect(bill.computed).toBe(promptTokens - bill.kept);

  const next = await ask(chat, { messages: request() });
  const survivors = history.blocks.slice(3).reduce((sum, { tokens }) => sum + tokens, 0);
  expect(next.bill.relocated).toBeGreaterThan(0.9 * survivors);
  const fresh = tokensOf([done!.memory.message]) + tokensOf(request().slice(-1));
  expect(next.bill.computed).toBeLessThanOrEqual(fresh);
});
