import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { pocketError } from "../../src/errors.ts";
import type { LocalChat } from "../../src/session/local-chat.ts";
import { hashing } from "../support/fake-engine.ts";
import { ask, assistant, localChat, long, system, user } from "../support/fake-engine-chat.ts";

const history = [system, user(long("a")), assistant(long("b")), user(long("c"))];
let folder: string;
let lines: string[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-disk-"));
  lines = [];
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const open = (more: object = {}, bytes = 1 << 30) =>
  localChat(hashing(256), {
    disk: { folder, bytes },
    log: (line) => lines.push(line),
    ...more,
  });
const files = () => readdirSync(folder).sort();

/** Cells of session "s" that an edit has moved. */
const movedRanges = (chat: LocalChat) => chat.inspect("s").shifts.filter(({ shift }) => shift !== 0);

describe("the disk tier", () => {
  it("restores an evicted session by its name, and only the new turn is computed", async () => {
    const { chat, engine } = open({ sessionsMax: 1 });
    const alone = await ask(localChat(hashing(256)).chat, { messages: history, maxTokens: 4 });
    const first = await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    expect(first.answer).toBe(alone.answer);
    await ask(chat, { messages: [user(long("z"))], session: "t", maxTokens: 2 });
    const computed = engine.tokensComputed;
    const { cacheUsage } = await ask(chat, { messages: [...history, user("d")], session: "s", maxTokens: 2 });
    expect(cacheUsage).toMatchObject({ session: "s", relocated: 0, stale: 0 });
    // All of the messages, and the first token of the generation prompt, with which every message begins.
    expect(cacheUsage.kept).toBe(first.promptTokens - chat.tokenize("assistant\n").length);
    expect(cacheUsage.reason).toMatch(/^\d+ tokens came from disk\./);
    expect(engine.tokensComputed - computed).toBe(cacheUsage.computed + 1);
    expect(lines).toEqual([]);
    await chat.close();
    // "s", "t", and "s" again, which had changed.
    expect(chat.stats()).toMatchObject({ sessions: 0, diskHits: 1, diskWrites: 3 });
    expect(engine.sequences.size).toBe(0);
  });

  it("keeps stale cells stale and messages at their index", async () => {
    const { chat } = open({ sessionsMax: 1 });
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    const edited = [system, user("Told."), ...history.slice(2)];
    const before = await ask(chat, { messages: edited, session: "s", maxTokens: 2 });
    const [range] = movedRanges(chat);
    await ask(chat, { messages: [user(long("z"))], session: "t", maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: [...edited, user("d")], session: "s", maxTokens: 2 });
    expect(cacheUsage.stale).toBeGreaterThan(before.cacheUsage.relocated - 20);
    // Up to the token where the new message begins.
    const [after, ...rest] = movedRanges(chat);
    expect(after!.start).toBe(range!.start);
    expect(after!.end).toBe(cacheUsage.kept);
    expect(rest).toEqual([]);
    const repaired = await ask(chat, {
      messages: [...edited, user("d")],
      session: "s",
      repair: "assistant",
      maxTokens: 2,
    });
    expect(repaired.cacheUsage.computed).toBeGreaterThan(chat.tokenize(long("b")).length);
  });

  it("lets the next process find closed sessions, by name and by content", async () => {
    const { chat } = open();
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await chat.close();
    expect(files().map((file) => file.split(".")[1])).toEqual(["json", "kv"]);
    const sidecar = readFileSync(join(folder, files()[0]!), "utf8");
    expect(sidecar).not.toContain("keep the house");
    const next = open();
    const anonymous = await ask(next.chat, { messages: [...history, user("d")], maxTokens: 2 });
    expect(anonymous.cacheUsage.session).not.toBe("s");
    // Files are found by marks of 256 tokens; the rest is compared token by token.
    expect(anonymous.cacheUsage.kept).toBeGreaterThan(400);
    expect(anonymous.cacheUsage.reason).toMatch(/tokens came from disk\. Shares \d+ tokens with session s\./);
    const named = await ask(next.chat, { messages: [...history, user("d")], session: "s", maxTokens: 2 });
    expect(named.cacheUsage.kept).toBeGreaterThan(400);
    expect(next.engine.loads).toBe(1);
    await next.chat.close();
  });

  it("restores a session for its own tenant only, and file names contain no API key", async () => {
    const { chat } = open();
    await ask(chat, { messages: history, session: "s", tenant: "sk-alice", maxTokens: 2 });
    await chat.close();
    for (const file of files()) expect(readFileSync(join(folder, file), "utf8")).not.toContain("alice");
    const next = open();
    for (const tenant of [undefined, "sk-bob"]) {
      const whose = tenant === undefined ? {} : { tenant };
      for (const name of [{ session: "s" }, {}]) {
        const { cacheUsage } = await ask(next.chat, { messages: history, maxTokens: 2, ...whose, ...name });
        expect(cacheUsage.reason).not.toContain("disk");
      }
      expect(() => next.chat.delete("s", "sk-carol")).toThrow("There is no session");
    }
    expect(next.engine.loads).toBe(0);
    const { cacheUsage } = await ask(next.chat, {
      messages: history,
      tenant: "sk-alice",
      session: "s",
      maxTokens: 2,
    });
    expect(cacheUsage.reason).toContain("came from disk");
  });

  it("does not write a restored session again if it has not changed", async () => {
    const { chat } = open();
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await chat.close();
    const next = open({ sessionsMax: 1 });
    await ask(next.chat, { messages: [...history.slice(0, 3), user("other")], maxTokens: 2 });
    expect(next.engine.loads).toBe(1);
    await ask(next.chat, { messages: [user("z")], session: "t", maxTokens: 2 });
    await next.chat.close();
    const { id } = JSON.parse(readFileSync(join(folder, files()[0]!), "utf8")) as { id: string };
    expect(id).toBeTypeOf("string");
    // Only the anonymous session was written; "s" had not changed.
    expect(next.chat.stats().diskWrites).toBe(1);
  });

  it("reads a file once for concurrent requests", async () => {
    const { chat } = open();
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await chat.close();
    const next = open();
    const answers = await Promise.all(
      ["s", "s", undefined].map((session) =>
        ask(next.chat, { messages: history, maxTokens: 3, ...(session === undefined ? {} : { session }) }),
      ),
    );
    expect(new Set(answers.map(({ answer }) => answer)).size).toBe(1);
    expect(next.engine.loads).toBe(1);
    for (const { cacheUsage } of answers) expect(cacheUsage.kept).toBeGreaterThan(300);
  });

  it("deletes the files of a deleted session, resident or not, also while they are being written", async () => {
    const { chat } = open({ sessionsMax: 1 });
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    const other = ask(chat, { messages: [user(long("z"))], session: "t", maxTokens: 2 });
    await new Promise((resolve) => setImmediate(resolve));
    chat.delete("s");
    await other;
    expect(() => chat.delete("s")).toThrow(expect.objectContaining({ code: "SESSION_NOT_FOUND" }));
    chat.delete("t");
    await chat.close();
    expect(files()).toEqual([]);
    expect(chat.stats().diskBytes).toBe(0);
  });

  it("deletes the file of a session before the answer to a forget request starts", async () => {
    const { chat } = open();
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await chat.close();
    const next = open();
    const edited = [system, user("Told."), ...history.slice(2)];
    const events = next.chat.chat({ messages: edited, session: "s", maxTokens: 20, forget: true });
    await events.next();
    expect(files()).toEqual([]);
    await events.return();
  });

  it("stays within its byte limit by deleting the least recently used session first", async () => {
    const { chat } = open();
    for (const session of ["a", "b", "c"]) {
      await ask(chat, { messages: [user(long(session))], session, maxTokens: 2 });
    }
    await chat.close();
    const kilobytes = files().reduce((sum, file) => sum + statSync(join(folder, file)).size, 0);
    expect(chat.stats().diskBytes).toBe(kilobytes);
    const next = open({}, Math.floor(kilobytes * 0.8));
    await ask(next.chat, { messages: [user(long("d"))], session: "d", maxTokens: 2 });
    await next.chat.close();
    expect(next.chat.stats().diskBytes).toBeLessThanOrEqual(kilobytes * 0.8);
    const ids = files().filter((file) => file.endsWith("json"));
    const names = ids.map(
      (file) => (JSON.parse(readFileSync(join(folder, file), "utf8")) as { id: string }).id,
    );
    expect(names.sort()).toEqual(["c", "d"]);
  });
});

describe("a failing disk", () => {
  it("only logs a line when the folder cannot be used", async () => {
    const file = join(folder, "file");
    writeFileSync(file, "");
    const { chat } = open({ disk: { folder: join(file, "below"), bytes: 1 << 20 }, sessionsMax: 1 });
    expect(lines).toEqual([expect.stringContaining("No session is kept on disk")]);
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: [user("z")], session: "t", maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    expect(cacheUsage.reason).toContain("Session s had gone");
    await chat.close();
  });

  it("leaves no file behind when the disk is full, and the session is computed again", async () => {
    const { chat, engine } = open({ sessionsMax: 1 });
    engine.saveFailure = pocketError("DISK_FULL", "the file", "no space left");
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await ask(chat, { messages: [user(long("z"))], session: "t", maxTokens: 2 });
    const { cacheUsage } = await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    expect(cacheUsage).toMatchObject({ session: "s", kept: 0 });
    expect(chat.stats()).toMatchObject({ diskWrites: 0, diskBytes: 0 });
    // The answer does not wait for the write; `close` does.
    await chat.close();
    expect(lines[0]).toContain("Session 's' could not be written to disk");
    expect(files()).toEqual([]);
    expect(engine.sequences.size).toBe(0);
  });

  it.each([
    ["cut short", (file: string) => truncateSync(file, 100)],
    ["of other cells than its sidecar says", (file: string) => writeFileSync(file, "[]")],
  ])("refuses a file %s, deletes it and computes the session", async (_, damage) => {
    const { chat } = open();
    const first = await ask(chat, { messages: history, session: "s", maxTokens: 4 });
    await chat.close();
    damage(join(folder, files()[1]!));
    const next = open();
    const again = await ask(next.chat, { messages: history, session: "s", maxTokens: 4 });
    expect(again.answer).toBe(first.answer);
    expect(again.cacheUsage.kept).toBe(0);
    expect(lines).toEqual([expect.stringContaining("could not be read from disk and is computed again")]);
    expect(files()).toEqual([]);
    expect(next.engine.sequences.size).toBe(1);
  });

  it("deletes incomplete and unreadable files at the start, and keeps files that are not its own", async () => {
    const { chat } = open();
    await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await chat.close();
    const [json, kv] = files() as [string, string];
    const orphan = "x".repeat(32);
    const unreadable = "y".repeat(32);
    const strangers = ["notes.txt", `${"z".repeat(31)}.kv`];
    for (const name of [`${orphan}.kv`, `${json}.tmp`, `${kv}.tmp-17`, `${unreadable}.kv`, ...strangers])
      writeFileSync(join(folder, name), "?");
    writeFileSync(join(folder, `${unreadable}.json`), '{"version":1,"id":7}');
    const next = open();
    expect(files()).toEqual([json, kv, ...strangers].sort());
    expect(
      (await ask(next.chat, { messages: history, session: "s", maxTokens: 2 })).cacheUsage.reason,
    ).toContain("came from disk");
    expect(lines).toEqual([]);
  });

  it("keeps a file that could not be loaded because the pool was full", async () => {
    const { chat } = open();
    const first = await ask(chat, { messages: history, session: "s", maxTokens: 2 });
    await chat.close();
    const written = files();
    const next = open({ capacity: first.promptTokens + 300 });
    const slow = next.chat.chat({ messages: [user("z".repeat(400))], session: "t", maxTokens: 200 });
    await slow.next();
    const waiting = ask(next.chat, { messages: history, session: "s", maxTokens: 2 });
    await slow.return();
    await waiting;
    expect(lines).toEqual([expect.stringContaining("The cache has")]);
    expect(files()).toEqual(expect.arrayContaining(written));
  });
});
