// The forced policy: which calls each answer may make, in which order, and how the run ends. A scripted model
// that always takes the first allowed call must solve the task.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ChatRequest, ToolCall } from "../../src/chat/chat.ts";
import { checkStore } from "../../src/context/integrity-check.ts";
import { Store } from "../../src/context/store.ts";
import type { AgentEvent } from "../../src/harness/events.ts";
import { policyOf } from "../../src/harness/policies/registry.ts";
import { beginRun, driveRun, isAnswered } from "../../src/harness/run.ts";
import { readTool, writeTool } from "../../src/harness/tools/files.ts";
import { Workspace } from "../../src/harness/tools/workspace.ts";
import { count, type Line, ScriptedChat } from "../support/fake-chat.ts";
import { runOptions } from "./agents.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-force-"));
  for (let number = 1; number <= 9; number++)
    writeFileSync(join(folder, `${number}.txt`), `code ${1000 + number} ${"x".repeat(500)}\n`);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

interface Shape {
  readonly properties: { readonly [name: string]: { readonly enum?: readonly string[] } };
}

const names = ({ callable = [] }: ChatRequest) => callable.map(({ name }) => name);
const choices = ({ callable = [] }: ChatRequest, tool: string, field: string) =>
  (callable.find(({ name }) => name === tool)?.parameters as Shape | undefined)?.properties[field]?.enum;

/** Takes the first allowed call: reads, compacts when that is demanded, and finishes when no file remains. */
function obedient(request: ChatRequest, turn: number): Line {
  if (request.fork) return { text: "Codes were read." };
  const say = (name: string, given: object): Line => ({
    calls: [{ id: `c${turn}`, name, arguments: JSON.stringify(given) } satisfies ToolCall],
  });
  if (typeof request.toolChoice === "object") {
    const start = choices(request, "compact_block", "start")![0];
    return say("compact_block", { start, end: choices(request, "compact_block", "end")!.at(-1), focus: "" });
  }
  const path = choices(request, "read", "path")?.[0];
  return path === undefined ? say("finish", { answer: "Nine codes." }) : say("read", { path });
}

async function run(script: (request: ChatRequest, turn: number) => Line, window = 6500) {
  const store = new Store(":memory:");
  const chat = new ScriptedChat(script);
  const settings = { ...runOptions, window, maxTurns: 60, nudge: 0.5, force: true };
  const begun = beginRun(store, { ...settings, task: "Read all." }, count);
  const workspace = new Workspace(folder);
  const events: AgentEvent[] = [];
  const result = await driveRun(begun, {
    chat,
    tools: [readTool(workspace, 4000), writeTool(workspace)],
    signal: new AbortController().signal,
    onEvent: (event) => events.push(event),
  });
  return { requests: chat.requests, result, events, store, conversation: begun.conversation };
}

describe("the forced agent", () => {
  test("reads each file once, compacts above its fraction of the window, and finishes", async () => {
    const { requests, result, events, store, conversation } = await run(obedient);
    expect(result).toMatchObject({ outcome: "answered", answer: "Nine codes." });
    const read = events.flatMap((event) =>
      event.type === "tool-called" && event.call.name === "read" ? [event.call.arguments] : [],
    );
    expect(read).toEqual(Array.from({ length: 9 }, (_, index) => `{"path":"${index + 1}.txt"}`));
    expect(conversation.archive.records.length).toBeGreaterThanOrEqual(2);
    // Each compressor was given a form, and no range had a memory while other blocks were available.
    const forms = requests.filter(({ fork }) => fork);
    expect(forms.every(({ format }) => format?.type === "json_schema")).toBe(true);
    expect(
      conversation.archive.records.every(({ parts }) => parts.every(({ kind }) => kind === "owned")),
    ).toBe(true);
    expect(checkStore(store.database)).toEqual([]);
    expect(isAnswered(conversation)).toBe(true);
    // The tools in the prompt never change, so that the cached prefix stays valid.
    expect(new Set(requests.map(({ tools }) => JSON.stringify(tools))).size).toBe(1);
    const agent = requests.filter(({ fork }) => !fork);
    expect(agent.every(({ toolChoice }) => toolChoice !== undefined)).toBe(true);
    store.close();
  });

  test("may expand only archived tags, and gets the list of its steps at the end of each request", async () => {
    const { requests, store } = await run(obedient);
    const work = requests.filter(({ toolChoice }) => toolChoice === "required");
    expect(names(work[0]!)).toEqual(["read"]);
    expect(work[0]!.messages.at(-1)!.content).toBe("Read all.");
    const last = work.at(-1)!;
    expect(names(last)).toEqual(["expand_block", "finish", "write"]);
    expect(choices(last, "expand_block", "tag")).toContain("ctx-0001");
    expect(last.messages.at(-1)!.content).toMatch(/^\[steps done\]\nread \{"path":"1\.txt"\}\nread /);
    store.close();
  });

  test("may expand each tag once, so that it cannot expand and compact for ever", async () => {
    const greedy = (request: ChatRequest, turn: number): Line => {
      const tag = choices(request, "expand_block", "tag")?.[0];
      if (request.fork || tag === undefined) return obedient(request, turn);
      return { calls: [{ id: `c${turn}`, name: "expand_block", arguments: JSON.stringify({ tag }) }] };
    };
    const { result, events, store } = await run(greedy);
    expect(result.outcome).toBe("answered");
    expect(events.some(({ type }) => type === "block-expanded")).toBe(true);
    store.close();
  });

  test("is asked again after a refused compaction only once the window is fuller", async () => {
    const stubborn = (request: ChatRequest, turn: number): Line => {
      if (request.fork) return { text: "", reason: "stop" };
      return obedient(request, turn);
    };
    const { requests, events, store } = await run(stubborn);
    const demands = requests.filter(({ toolChoice }) => typeof toolChoice === "object").length;
    expect(events.some(({ type }) => type === "block-compacted")).toBe(false);
    expect(demands).toBeGreaterThanOrEqual(2);
    expect(demands).toBeLessThanOrEqual(7);
    store.close();
  });

  test("is used only with nudge and force, and is named", () => {
    expect(policyOf({ harness: "pca", nudge: 0.5, force: true }).name).toBe("pca+force");
    expect(policyOf({ harness: "pca", nudge: 0.5 }).name).toBe("pca+nudge");
    expect(policyOf({ harness: "pca" })).toMatchObject({ name: "pca" });
    expect(policyOf({ harness: "react", nudge: 0.5, force: true }).name).toBe("react");
  });
});
