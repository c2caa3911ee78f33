// A stored run from its beginning to its answer, through interruptions; and the nudge.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { checkStore } from "../../src/context/integrity-check.ts";
import { Store } from "../../src/context/store.ts";
import { pocketError } from "../../src/errors.ts";
import type { AgentEvent } from "../../src/harness/events.ts";
import { readReport, storedEvents } from "../../src/harness/report.ts";
import { beginRun, driveRun, resumeRun } from "../../src/harness/run.ts";
import { count, type Line, type Script, ScriptedChat } from "../support/fake-chat.ts";
import { agentOf, read, runOptions } from "./agents.ts";

let folder: string;
let store: Store;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-run-"));
  store = new Store(join(folder, "runs.sqlite"));
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true });
});

const never = new AbortController().signal;
const drive = (
  run: ReturnType<typeof beginRun>,
  script: Script,
  signal = never,
  onEvent?: (event: AgentEvent) => void,
) => {
  const chat = new ScriptedChat(script);
  return { chat, done: driveRun(run, { chat, tools: [read], signal, ...(onEvent && { onEvent }) }) };
};

test("a run is stored with its events, its costs and its answer", async () => {
  const run = beginRun(store, { ...runOptions, task: "Read\n everything." }, count);
  const habit = { turns: 12, size: () => 300, compacts: { at: 4, blocks: 3, from: "front" as const } };
  const live: AgentEvent[] = [];
  const { chat, done } = drive(run, agentOf(habit), never, (event) => live.push(event));
  expect((await done).outcome).toBe("answered");
  expect(run.info.title).toBe("Read everything.");
  const stored = [...storedEvents(store.database, run.info.id)];
  expect(stored).toEqual(live.filter(({ type }) => type !== "text-delta"));

  const report = readReport(store.database, run.info.id);
  expect(report).toMatchObject({ outcome: "answered", answer: "All 12 turns are done.", expands: 0 });
  expect(report.turns).toHaveLength(12);
  expect(report.compactions.length).toBeGreaterThanOrEqual(2);
  for (const { tokensBefore, tokensAfter, computed } of report.compactions) {
    expect(tokensBefore).toBeGreaterThan(tokensAfter);
    expect(computed).toBeGreaterThan(0);
  }
  const agent = chat.requests.filter(({ fork }) => !fork);
  expect(agent).toHaveLength(12);
  const computed = report.usage.agent.computed + report.usage.compressor.computed;
  expect([report.computed, report.prefixOnly]).toEqual([computed, computed]);
  expect(checkStore(store.database)).toEqual([]);
});

test("an interrupted run continues, and ends like one that was not interrupted", async () => {
  const whole = beginRun(store, { ...runOptions, id: "whole", task: "Go." }, count);
  const habit = { turns: 8, size: () => 100 };
  await drive(whole, agentOf(habit)).done;

  const agent = agentOf(habit);
  const first = beginRun(store, { ...runOptions, id: "broken", task: "Go." }, count);
  const controller = new AbortController();
  const { done } = drive(first, agent, controller.signal, (event) => {
    if (event.type === "block-appended" && event.block === "b004")
      controller.abort(pocketError("RUN_INTERRUPTED", "broken"));
  });
  await expect(done).rejects.toMatchObject({ code: "RUN_INTERRUPTED" });
  expect(readReport(store.database, "broken")).toMatchObject({ outcome: "stopped", why: /interrupted/ });
  store.close();
  store = new Store(store.file);
  const second = resumeRun(store, "broken", count);
  await drive(second, agent).done;
  expect(second.conversation.history.messages()).toEqual(whole.conversation.history.messages());
  expect(readReport(store.database, "broken").outcome).toBe("answered");
});

test("an answered run can be resumed only with one more request", async () => {
  await drive(beginRun(store, { ...runOptions, id: "run", task: "2 + 2?" }, count), [{ text: "4" }]).done;
  expect(() => resumeRun(store, "run", count)).toThrow("has its answer already");
  const { chat, done } = drive(resumeRun(store, "run", count, "And 3 + 3?"), [{ text: "6" }]);
  expect((await done).answer).toBe("6");
  expect(chat.requests[0]!.messages.map(({ content }) => content)).toEqual(
    expect.arrayContaining(["2 + 2?", "4", "And 3 + 3?"]),
  );
});

test("a run that a server failure ended can be resumed", async () => {
  const run = beginRun(store, { ...runOptions, id: "run", task: "Go." }, count);
  await expect(drive(run, [{ error: pocketError("ENGINE_CLOSED") }]).done).rejects.toMatchObject({
    code: "ENGINE_CLOSED",
  });
  expect([...storedEvents(store.database, "run")].at(-1)).toMatchObject({
    type: "run-stopped",
    code: "ENGINE_CLOSED",
  });
  expect((await drive(resumeRun(store, "run", count), [{ text: "Done." }]).done).answer).toBe("Done.");
});

test("invalid settings are refused with the name of the field", () => {
  store.create({ id: "alien", title: "", settings: { harness: "x" }, instructions: [] }, count);
  expect(() => resumeRun(store, "alien", count)).toThrow("its settings: harness:");
});

test("both policies have the same instructions, and Pocket Context adds its own", () => {
  const prompt = (harness: "pca" | "react") =>
    beginRun(store, { ...runOptions, harness, id: harness, task: "Go." }, count).conversation.history
      .instructions[0]!.content;
  expect(prompt("pca").startsWith(`${prompt("react")}\n`)).toBe(true);
});

describe("the nudge", () => {
  const asks = ({ content }: { content: string }) => content.includes("% full. Before you go on");
  async function requestsOf(
    nudge: number | undefined,
    answer: (asked: boolean, turn: number) => Line,
    window = 4000,
  ) {
    const settings = { ...runOptions, window, ...(nudge === undefined ? {} : { nudge }) };
    const script: Script = (request, turn) => {
      if (request.fork) return { text: "Short." };
      return turn > 30 ? { text: "Done." } : answer(asks(request.messages.at(-1)!), turn);
    };
    const { chat, done } = drive(beginRun(store, { ...settings, task: "Go." }, count), script);
    await done;
    return chat.requests;
  }
  const reads: Line = { text: "I read.", calls: [{ id: "r", name: "read", arguments: '{"size":200}' }] };

  test("is off unless a run asks for it", async () => {
    const requests = await requestsOf(undefined, () => reads, 12_000);
    expect(requests.some(({ messages }) => messages.some(asks))).toBe(false);
  });

  test("asks once, from its fraction of the window on, and is not stored", async () => {
    const requests = await requestsOf(0.5, () => reads, 12_000);
    const asked = requests.filter(({ messages }) => messages.some(asks));
    expect(asked).toHaveLength(1);
    const trailer = asked[0]!.messages.at(-1)!.content;
    expect(Number(/context is (\d+) % full/.exec(trailer)![1])).toBeGreaterThanOrEqual(50);
    // Requests before it have no catalog, and all requests after it have one.
    const hasCatalog = requests.map(({ messages }) =>
      messages.at(-1)!.content.startsWith("[context catalog]"),
    );
    const index = requests.indexOf(asked[0]!);
    expect(hasCatalog.indexOf(true)).toBe(index);
    expect(requests[index - 1]!.messages.at(-1)!.role).toBe("tool");
    expect(hasCatalog[index + 1]).toBe(true);
  });

  test("asks again after a compaction, with a call that works", async () => {
    const requests = await requestsOf(0.7, (asked, turn) => {
      if (!asked) return reads;
      return { text: "", calls: [{ id: `k${turn}`, name: "compact_block", arguments: "…" }] };
    });
    expect(requests.filter(({ messages }) => messages.some(asks))).toHaveLength(1);
    let last = "";
    const followed = await requestsOf(0.7, (asked) =>
      asked ? { text: "I compact.", calls: [] } : reads,
    ).catch(() => []);
    expect(followed.length).toBeGreaterThan(0);
    last = followed.find(({ messages }) => messages.some(asks))!.messages.at(-1)!.content;
    expect(last).toMatch(/compact_block \{"start": "b001", "end": "b0\d\d"\}\.$/);
  });
});
