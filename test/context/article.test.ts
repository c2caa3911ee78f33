// The examples of the Pocket Context article, with its own block numbers.
import { expect, test } from "vitest";
import { catalogOf } from "../../src/context/catalog.ts";
import { compactBlock } from "../../src/context/compact.ts";
import type { Conversation } from "../../src/context/conversation.ts";
import { expandBlock } from "../../src/context/expand.ts";
import { labelOf } from "../../src/context/tag.ts";
import { exchangeOf, filled, summarising } from "../support/fake-chat.ts";

const limit = 100_000;

async function compact(conversation: Conversation, start: string, end: string) {
  const options = { conversation, compressor: summarising(), limit };
  const { done, text } = await compactBlock(JSON.stringify({ start, end }), options);
  if (!done) throw new Error(text);
  return done;
}

function expand(conversation: Conversation, tag: string) {
  const { done, text } = expandBlock(JSON.stringify({ tag }), { conversation, limit, pending: 0 });
  if (!done) throw new Error(text);
  return { text, refs: done.refs, copies: done.apply() };
}

const ids = ({ history }: Conversation) => history.blocks.map(({ id }) => id);

test("b001 to b003 become a summary tagged ctx-0001, which is the block b011", async () => {
  const conversation = filled(10);
  const { memory, record } = await compact(conversation, "b001", "b003");
  expect([memory.id, memory.tag, memory.refs]).toEqual(["b011", "ctx-0001", []]);
  expect(ids(conversation)).toEqual(["r001", "b011", "b004", "b005", "b006", "b007", "b008", "b009", "b010"]);
  expect(record.parts.map(({ kind, block }) => [kind, block])).toEqual([
    ["owned", "b001"],
    ["owned", "b002"],
    ["owned", "b003"],
  ]);
  expect(memory.message.content).toBe("[memory ctx-0001 covers=b001-b003]\nWhat was read.");
});

test("b011 with b004 and b005 becomes ctx-0002 refs=ctx-0001, which owns only b004 and b005", async () => {
  const conversation = filled(10);
  await compact(conversation, "b001", "b003");
  const { memory } = await compact(conversation, "b011", "b005");
  expect(labelOf(memory.tag, memory.refs)).toBe("ctx-0002 refs=ctx-0001");
  expect(ids(conversation)).toEqual(["r001", "b012", "b006", "b007", "b008", "b009", "b010"]);
  expect(memory.message.content).toContain("[memory ctx-0002 refs=ctx-0001 covers=b011,b004-b005]");
  const { parts } = conversation.archive.get("ctx-0002")!;
  expect(parts.map(({ kind, block }) => [kind, block])).toEqual([
    ["ref", "b011"],
    ["owned", "b004"],
    ["owned", "b005"],
  ]);

  const { copies, refs, text } = expand(conversation, "ctx-0002");
  expect(refs).toEqual(["ctx-0001"]);
  expect(text).toContain("refers to ctx-0001");
  expect(copies.map(({ id }) => id)).toEqual(["b013", "b014"]);
  expect(conversation.history.messages().slice(-4)).toEqual([...exchangeOf("b004"), ...exchangeOf("b005")]);
});

test("references come from the selection, never from what the summary mentions", async () => {
  const conversation = filled(10);
  await compact(conversation, "b001", "b003");
  const options = { conversation, compressor: summarising("See ctx-0001, ctx-0009."), limit };
  const { done } = await compactBlock('{"start":"b004","end":"b006"}', options);
  expect(done!.memory.refs).toEqual([]);
  expect(conversation.archive.recall("ctx-0002")!.refs).toEqual([]);
});

test("copies of b002 and b003 that are compacted with newer messages are referenced, not stored again", async () => {
  const conversation = filled(10);
  await compact(conversation, "b002", "b003");
  conversation.exchange(exchangeOf("expand call"));
  const { copies } = expand(conversation, "ctx-0001");
  expect(copies.map(({ id }) => id)).toEqual(["b013", "b014"]);
  expect(copies.map((copy) => copy.kind !== "memory" && copy.origin)).toEqual([
    { tag: "ctx-0001", block: "b002" },
    { tag: "ctx-0001", block: "b003" },
  ]);
  for (const name of ["b015", "b016", "b017"]) conversation.exchange(exchangeOf(name));

  const { record } = await compact(conversation, "b013", "b016");
  expect(record.parts).toMatchObject([
    { kind: "reused", block: "b013", tag: "ctx-0001", source: "b002" },
    { kind: "reused", block: "b014", tag: "ctx-0001", source: "b003" },
    { kind: "owned", block: "b015" },
    { kind: "owned", block: "b016" },
  ]);
  const stored = conversation.archive.records.flatMap(({ parts }) =>
    parts.flatMap((part) => (part.kind === "owned" ? part.originals.map(({ id }) => id) : [])),
  );
  expect(new Set(stored).size).toBe(stored.length);

  // Recall is still word for word: reused parts are read from the record that owns the originals.
  expand(conversation, "ctx-0002");
  const again = ["b002", "b003", "b015", "b016"].flatMap((name) => exchangeOf(name));
  expect(conversation.history.messages().slice(-again.length)).toEqual(again);
});

test("a reused part of a copy of a copy points to the record that owns the original", async () => {
  const conversation = filled(4);
  await compact(conversation, "b001", "b002");
  conversation.exchange(exchangeOf("one"));
  expand(conversation, "ctx-0001");
  for (const name of ["two", "three"]) conversation.exchange(exchangeOf(name));
  const { record } = await compact(conversation, "b007", "b008");
  expect(record.parts.map((part) => part.kind)).toEqual(["reused", "reused"]);
  expand(conversation, record.tag);
  for (const name of ["four", "five"]) conversation.exchange(exchangeOf(name));
  const copies = conversation.history.blocks.filter((block) => block.kind === "exchange" && block.origin);
  const third = await compact(conversation, copies[0]!.id, copies[1]!.id);
  expect(third.record.parts).toMatchObject([
    { kind: "reused", tag: "ctx-0001", source: "b001" },
    { kind: "reused", tag: "ctx-0001", source: "b002" },
  ]);
});

test("instructions, the latest request and the latest exchange are not in the catalog", () => {
  const conversation = filled(10);
  const listed = () => catalogOf(conversation.history).map(({ id }) => id);
  expect(listed()).toEqual(["b001", "b002", "b003", "b004", "b005", "b006", "b007", "b008", "b009"]);
  conversation.request({ role: "user", content: "And another question." });
  expect(listed()).toEqual(["r001", "b001", "b002", "b003", "b004", "b005", "b006", "b007", "b008", "b009"]);
});
