// Stored, exported and streamed events keep the keys that earlier versions wrote.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { exportRun } from "../../src/context/export.ts";
import { Store } from "../../src/context/store.ts";
import { eventFromJson, eventToJson, reportToJson } from "../../src/harness/event-json.ts";
import type { AgentEvent } from "../../src/harness/events.ts";
import { readRecording } from "../../src/harness/recording.ts";
import { replay } from "../../src/harness/replay.ts";
import { readReport, storedEvents } from "../../src/harness/report.ts";
import { beginRun } from "../../src/harness/run.ts";
import { emptyUsage } from "../../src/harness/usage.ts";
import { count } from "../support/fake-chat.ts";
import { runOptions } from "./agents.ts";

let store: Store;
beforeEach(() => {
  store = new Store(":memory:");
});
afterEach(() => store.close());

/** Bodies of the events in an export that an earlier version wrote. */
const recording = readFileSync(join(import.meta.dirname, "recordings", "qwen2.5-coder-0.5b.jsonl"), "utf8");
const oldBodies = recording
  .split("\n")
  .filter((line) => line.startsWith('{"type":"event"'))
  .map((line) => (JSON.parse(line) as { readonly body: { readonly type: string } }).body);

test("events of an earlier version are read and written again without a difference", () => {
  expect(oldBodies.some((body) => JSON.stringify(body).includes('"bill":{'))).toBe(true);
  for (const body of oldBodies)
    expect(JSON.stringify(eventToJson(eventFromJson(body)))).toBe(JSON.stringify(body));
});

test("the report of a run that an earlier version stored has its costs", () => {
  const run = beginRun(store, { ...runOptions, id: "old", task: "Find the codes." }, count);
  for (const body of oldBodies) run.journal.event(body.type, body);
  const report = readReport(store.database, "old");
  // The figures of the recording's own run-finished event.
  expect(report.usage).toMatchObject({
    agent: { calls: 25, kept: 68158, relocated: 20503, computed: 24876 },
    compressor: { calls: 9, kept: 35164, computed: 1385 },
    peakInput: 7414,
  });
  expect(report.computed).toBe(24876 + 1385);
  expect(reportToJson(report)).toMatchObject({ tally: report.usage });
});

test("an export of an earlier version replays", async () => {
  const { turns, compactions } = await replay(readRecording("old.jsonl", recording), "pca", count);
  expect(turns).toBeGreaterThan(20);
  expect(compactions).toBeGreaterThanOrEqual(2);
});

test("new events are stored and exported under the earlier keys, and read under the names of the code", () => {
  const cacheUsage = { session: "s", kept: 1, relocated: 2, computed: 3, stale: 0, reason: "First request." };
  const finish = { type: "answer-finished", reason: "stop", promptTokens: 6, completionTokens: 1 } as const;
  const draftTokens = { accepted: 4, rejected: 5 };
  const whole = { ...finish, cacheUsage, draftTokens, promptMs: 1, generateMs: 1 };
  const events: AgentEvent[] = [
    { type: "answer-finished", turn: 1, finish: whole },
    { type: "compressor-finished", finishes: [whole] },
    { type: "run-finished", outcome: "answered", answer: "4", usage: emptyUsage },
  ];
  const run = beginRun(store, { ...runOptions, id: "new", task: "Go." }, count);
  for (const event of events) run.journal.event(event.type, eventToJson(event));
  expect([...storedEvents(store.database, "new")]).toEqual(events);
  const exported = [...exportRun(store.database, "new")].join("\n");
  expect(exported).toContain('"bill":{"session":"s","kept":1');
  expect(exported).toContain('"proposals":{"accepted":4');
  expect(exported).toContain('"tally":{"agent":');
  expect(exported).not.toMatch(/"(cacheUsage|draftTokens|usage)"/);
});
