// Scripted agents with long runs: they read files one after another, and compact when the catalog lists more
// blocks than their limit.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ChatRequest, ToolCall } from "../../src/chat/chat.ts";
import { exportRun } from "../../src/context/export.ts";
import { Store } from "../../src/context/store.ts";
import { beginRun, driveRun } from "../../src/harness/run.ts";
import type { RunOptions } from "../../src/harness/run-options.ts";
import type { AgentTool } from "../../src/harness/tool.ts";
import { count, type Line, ScriptedChat } from "../support/fake-chat.ts";

export const read: AgentTool = {
  spec: { name: "read", description: "Reads." },
  run: async (json) => `${json} ${"x".repeat(JSON.parse(json).size)}`,
};

export const runOptions: RunOptions = { harness: "pca", model: "scripted", window: 100_000, maxTurns: 100 };

export interface Habit {
  readonly turns: number;
  /** Characters of the file read in this turn. */
  readonly size: (turn: number) => number;
  /** Compacts `blocks` blocks from one end of the catalog when it has `at` or more. */
  readonly compacts?: { readonly at: number; readonly blocks: number; readonly from: "front" | "back" };
  /** The turn in which it expands the first tag. */
  readonly expands?: number;
}

/** Decides from the request alone, like a model. */
export function agentOf({ turns, size, compacts, expands }: Habit): (request: ChatRequest) => Line {
  let turn = 0;
  return (request) => {
    if (request.fork) return { text: `What was read up to turn ${turn}.` };
    turn++;
    const call = (name: string, given: object): ToolCall => ({
      id: `c${turn}`,
      name,
      arguments: JSON.stringify(given),
    });
    if (turn >= turns) return { text: `All ${turns} turns are done.` };
    if (turn === expands)
      return { text: "I look again.", calls: [call("expand_block", { tag: "ctx-0001" })] };
    const catalog = request.messages.at(-1)!.content;
    const ids = [...catalog.matchAll(/^(b\d+) /gm)].map(([, id]) => id!);
    if (compacts && ids.length >= compacts.at) {
      const chosen = compacts.from === "front" ? ids.slice(0, compacts.blocks) : ids.slice(-compacts.blocks);
      return { text: "I compact.", calls: [call("compact_block", { start: chosen[0], end: chosen.at(-1) })] };
    }
    return { text: `I read file ${turn}.`, calls: [call("read", { size: size(turn), turn })] };
  };
}

/** The export of a whole run, and its requests. */
export async function record(
  habit: Habit,
): Promise<{ readonly text: string; readonly requests: readonly ChatRequest[] }> {
  const folder = mkdtempSync(join(tmpdir(), "pocket-record-"));
  const store = new Store(join(folder, "runs.sqlite"));
  try {
    const run = beginRun(store, { ...runOptions, id: "run", task: "Read everything." }, count);
    const chat = new ScriptedChat(agentOf(habit));
    await driveRun(run, { chat, tools: [read], signal: new AbortController().signal });
    return { text: [...exportRun(store.database, "run")].join("\n"), requests: chat.requests };
  } finally {
    store.close();
    rmSync(folder, { recursive: true });
  }
}
