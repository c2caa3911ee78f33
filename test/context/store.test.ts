import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { compactBlock } from "../../src/context/compact.ts";
import type { Conversation } from "../../src/context/conversation.ts";
import { expandBlock } from "../../src/context/expand.ts";
import { exportRun } from "../../src/context/export.ts";
import { checkStore } from "../../src/context/integrity-check.ts";
import { type Run, Store } from "../../src/context/store.ts";
import { count, exchangeOf, instructions, summarising } from "../support/fake-chat.ts";

let folder: string;
let store: Store;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-store-"));
  store = new Store(join(folder, "runs.sqlite"));
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true });
});

const newRun = (id = "run"): Run =>
  store.create({ id, title: "A task", settings: { window: 8192 }, instructions }, count);

const compact = (conversation: Conversation, start: string, end: string) =>
  compactBlock(JSON.stringify({ start, end }), { conversation, compressor: summarising(), limit: 1e9 });

/** A run with two requests, nested compactions, copies in the history and compacted copies. */
async function filledRun(run: Run): Promise<Conversation> {
  const { conversation } = run;
  conversation.request({ role: "user", content: "First 🙂 question\u0000with a NUL" });
  for (const name of ["b001", "b002", "b003", "b004"]) conversation.exchange(exchangeOf(name, 200, 2));
  await compact(conversation, "b001", "b002");
  conversation.request({ role: "user", content: "Second question" });
  conversation.exchange(exchangeOf("expand"));
  expandBlock('{"tag":"ctx-0001"}', { conversation, limit: 1e9, pending: 0 }).done!.apply();
  for (const name of ["b009", "b010"]) conversation.exchange(exchangeOf(name));
  await compact(conversation, "b008", "b009");
  await compact(conversation, "r001", "b003");
  conversation.exchange(exchangeOf("after"));
  return conversation;
}

const stateOf = ({ history, archive }: Conversation) => ({
  blocks: history.blocks,
  messages: history.messages(),
  tokens: history.tokens,
  next: [history.nextIds("b", 1), history.nextIds("r", 1)],
  records: archive.records,
  recalled: archive.tags.map((tag) => archive.recall(tag)),
});

test("a resumed run equals the run before, and continues with the next ids", async () => {
  const run = newRun();
  const before = stateOf(await filledRun(run));
  expect(before.records.flatMap(({ parts }) => parts.map(({ kind }) => kind))).toEqual(
    expect.arrayContaining(["owned", "ref", "reused"]),
  );
  store.close();
  store = new Store(store.file);
  const { conversation, info } = store.resume("run", count);
  expect(stateOf(conversation)).toEqual(before);
  expect(info).toMatchObject({ id: "run", title: "A task", settings: { window: 8192 } });
  expect(checkStore(store.database)).toEqual([]);

  conversation.exchange(exchangeOf("later"));
  expect((await compact(conversation, "b010", "b010")).done!.memory.tag).toBe("ctx-0004");
  expect(stateOf(store.resume("run", count).conversation)).toEqual(stateOf(conversation));
});

test("runs are independent, and a deleted run leaves no rows", async () => {
  await filledRun(newRun("one"));
  const two = stateOf(await filledRun(newRun("two")));
  expect(
    store
      .list()
      .map(({ id }) => id)
      .sort(),
  ).toEqual(["one", "two"]);
  store.delete("one");
  expect(stateOf(store.resume("two", count).conversation)).toEqual(two);
  for (const table of ["messages", "blocks", "records", "parts", "events"]) {
    const rows = store.database.prepare(`SELECT count(*) AS count FROM ${table} WHERE run = 'one'`).get();
    expect(rows).toEqual({ count: 0 });
  }
  expect(() => store.resume("one", count)).toThrow("There is no run 'one'");
  expect(() => store.delete("one")).toThrow("There is no run 'one'");
  expect(() => newRun("two")).toThrow("There is a run 'two'");
});

test("a change that cannot be written does not change memory either", async () => {
  const { conversation } = newRun();
  conversation.request({ role: "user", content: "Question" });
  for (const name of ["b001", "b002", "b003"]) conversation.exchange(exchangeOf(name));
  const before = stateOf(conversation);
  store.database.exec(
    "CREATE TEMP TRIGGER full BEFORE UPDATE ON blocks BEGIN SELECT raise(ABORT, 'disk is full'); END",
  );
  await expect(compact(conversation, "b001", "b002")).rejects.toThrow(/could not be written: disk is full/);
  expect(stateOf(conversation)).toEqual(before);
  store.database.exec("DROP TRIGGER full");
  expect(stateOf(store.resume("run", count).conversation)).toEqual(before);
  expect((await compact(conversation, "b001", "b002")).done).toBeDefined();
});

test("if two processes write the same run, the second one fails and changes nothing", () => {
  newRun();
  const other = new Store(store.file);
  try {
    const [one, two] = [store, other].map((handle) => handle.resume("run", count).conversation);
    one!.exchange(exchangeOf("one"));
    expect(() => two!.exchange(exchangeOf("two"))).toThrow(/could not be written: UNIQUE/);
    expect(two!.history.blocks).toEqual([]);
    expect(checkStore(store.database)).toEqual([]);
    expect(store.resume("run", count).conversation.history.messages()).toEqual(one!.history.messages());
  } finally {
    other.close();
  }
});

test("an export has every original once, word for word, in JSON lines", async () => {
  const run = newRun();
  await filledRun(run);
  run.journal.event("turn", { promptTokens: 12 });
  run.journal.event("turn", { promptTokens: 13 });
  const lines = [...exportRun(store.database, "run")];
  expect(lines.every((line) => !line.includes("\n"))).toBe(true);
  const objects = lines.map((line) => JSON.parse(line));
  const of = (type: string) => objects.filter((line) => line.type === type);
  expect(of("run")).toMatchObject([{ id: "run", instructions, settings: { window: 8192 } }]);
  expect(of("message").map(({ id }) => id)).toEqual(of("message").map((_, index) => index + 1));
  const [, ...rest] = exchangeOf("b001", 200, 2);
  expect(of("message").map(({ message }) => message)).toEqual(expect.arrayContaining(rest));
  expect(of("record").map(({ tag }) => tag)).toEqual(["ctx-0001", "ctx-0002", "ctx-0003"]);
  expect(of("part").filter(({ kind }) => kind === "reused")).toMatchObject([
    { targetTag: "ctx-0001", targetBlock: "b002" },
  ]);
  expect(of("event")).toMatchObject([
    { seq: 1, name: "turn", body: { promptTokens: 12 } },
    { seq: 2, name: "turn", body: { promptTokens: 13 } },
  ]);
  expect(() => [...exportRun(store.database, "none")]).toThrow("There is no run 'none'");
});

describe("checkStore finds", () => {
  test.each([
    [
      "a changed message",
      "UPDATE messages SET body = replace(body, 'xxx', 'xxy') WHERE id = 3",
      "Message 3 is not what was written",
    ],
    ["a lost message", "DELETE FROM messages WHERE id = 3", "Message 3 is missing"],
    [
      "a lost part",
      "DELETE FROM parts WHERE block = 'b002'",
      "b002 is neither in the history nor under a tag.",
    ],
    [
      "a block in both",
      "UPDATE blocks SET place = 999 WHERE id = 'b001'",
      "b001 is in the history and under ctx-0001.",
    ],
    ["a lost block", "DELETE FROM blocks WHERE id = 'b010'", "Block b010 is missing."],
    [
      "a lost record",
      "DELETE FROM records WHERE tag = 'ctx-0001'",
      "points at ctx-0001, which does not exist.",
    ],
    [
      "a wrong memory",
      "UPDATE records SET memory = 'b001' WHERE tag = 'ctx-0002'",
      "ctx-0002 has the memory b001",
    ],
    ["a broken body", "UPDATE messages SET body = 'x' WHERE id = 3", "A row is not JSON"],
    [
      "a wrong source",
      "UPDATE parts SET target_block = 'b003' WHERE kind = 'reused'",
      "b003 of ctx-0001, which does not own it",
    ],
  ])("%s", async (_, sql, sentence) => {
    await filledRun(newRun());
    store.database.exec(sql);
    const damages = checkStore(store.database);
    expect(damages.every(({ run }) => run === "run")).toBe(true);
    expect(damages.map(({ what }) => what).join("\n")).toContain(sentence);
    expect(checkStore(store.database, "another")).toEqual([]);
    // A damaged run can still be exported.
    expect([...exportRun(store.database, "run")].length).toBeGreaterThan(10);
  });

  test("a lost message, and resuming that run is refused", async () => {
    await filledRun(newRun());
    store.database.exec("DELETE FROM messages WHERE block = 'b001'");
    expect(() => store.resume("run", count)).toThrow(/The run 'run' cannot be read: .*messages of b001/);
  });
});

test("a file that is not a store is refused and left unchanged", () => {
  const text = join(folder, "notes.txt");
  writeFileSync(text, "not a database, but long enough to be taken for one".repeat(100));
  expect(() => new Store(text)).toThrow(/notes\.txt cannot be used: file is not a database/);
  expect(() => new Store(join(folder, "none", "runs.sqlite"))).toThrow(/cannot be used/);
  store.database.pragma("user_version = 99");
  expect(() => new Store(store.file)).toThrow(/its version is 99, not 1/);
});
