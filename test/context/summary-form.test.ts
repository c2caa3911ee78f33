// A summary as a form: the fields of a range, the request to the compressor, and the summary made from its
// answer.
import { expect, test } from "vitest";
import { compactBlock } from "../../src/context/compact.ts";
import { Compressor } from "../../src/context/compressor.ts";
import { fieldsOf, textOf } from "../../src/context/summary-form.ts";
import { exchangeOf, filled, type Line, ScriptedChat } from "../support/fake-chat.ts";

const fields = ["b002", "b003"];

async function compacted(...script: Line[]) {
  const chat = new ScriptedChat(script);
  const conversation = filled(5);
  const compressor = new Compressor({ chat });
  const options = { conversation, compressor, limit: 100_000, form: true };
  return { chat, conversation, ...(await compactBlock('{"start":"b002","end":"b003"}', options)) };
}

test("a form has a field per call of the range and becomes a line per field", async () => {
  const answer = JSON.stringify({ b002: "1105 ", b003: "none" });
  const { chat, done, conversation } = await compacted({ text: answer });
  const [{ format, messages }] = chat.requests as [(typeof chat.requests)[number]];
  expect(format).toMatchObject({ type: "json_schema", schema: { required: fields } });
  const task = conversation.history.blocks[0]!;
  const request = task.kind === "memory" ? "" : task.originals[0]!.message.content;
  expect(messages.at(-1)!.content).toMatch(/^.*\n\nWhich value /);
  expect(messages.at(-1)!.content).toContain(request);
  expect(done!.record.summary).toBe("b002: 1105\nb003: none");
});

test("an empty form is asked for once more", async () => {
  const blank = JSON.stringify({ b002: "", b003: " " });
  const { chat, done, text } = await compacted({ text: blank }, { text: "{}" });
  expect(chat.requests).toHaveLength(2);
  expect(done).toBeUndefined();
  expect(text).toContain("was empty");
});

test("free text from a Chat without constrained decoding is the summary", () => {
  expect(textOf("Two files were read.", fields)).toBe("Two files were read.");
});

test("fields are memories by their tag and each call once, without calls of context tools", async () => {
  const { conversation } = await compacted({ text: "A summary." });
  const manage = { id: "x", name: "compact_block", arguments: "{}" };
  conversation.exchange(exchangeOf("b004"));
  conversation.exchange([
    { role: "assistant", content: "", toolCalls: [manage] },
    { role: "tool", content: "done", toolCallId: "x" },
  ]);
  expect(fieldsOf(conversation.history.blocks)).toEqual(["b001", "ctx-0001", "b004", "b005"]);
});
