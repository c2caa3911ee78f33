// Recorded runs without a model: an agent that follows a list of moves through this repository with the real tools,
// and compacts what it has read when the catalog says that it holds more than it likes. Loop, policy, store and
// export are the real ones, so a recording is what `pocket runs export` gives, and its tool results are real text.
// What the agent says and what its compressor writes is made by rule; that is all that is scripted.
import type { Chat, ChatEvent, ChatRequest, Message, ToolCall } from "../../src/chat/chat.ts";
import { exportRun } from "../../src/context/export.ts";
import { Store } from "../../src/context/store.ts";
import { beginRun, driveRun } from "../../src/harness/run.ts";
import { openToolset } from "../../src/harness/tools/toolset.ts";

export interface Move {
  readonly say: string;
  readonly tool: string;
  readonly given: Readonly<Record<string, unknown>>;
}

export interface Script {
  readonly name: string;
  readonly task: string;
  readonly moves: readonly Move[];
  readonly answer: string;
  /** Compacts when the catalog offers more tokens than this … */
  readonly compactsAt: number;
  /** … all blocks of it but the newest ones, of which it keeps so many; `newest`: the newer half instead. */
  readonly keeps: number;
  readonly newest?: boolean;
}

/** Tokens as they are estimated everywhere without a tokenizer. */
export function estimate({ content, toolCalls = [] }: Message): number {
  const calls = toolCalls.map(({ name, arguments: json }) => name + json).join("");
  return 5 + Math.ceil((content.length + calls.length) / 3);
}

/** The exported lines of a run of the script in `workspace`, which it only reads. */
export async function record(script: Script, workspace: string, resultTokens: number): Promise<string> {
  const store = new Store(":memory:");
  const kit = openToolset({ workspace, window: 6 * resultTokens });
  try {
    const order = { harness: "pca", model: "scripted", window: 1_000_000, maxTurns: 400 } as const;
    const run = beginRun(store, { ...order, id: script.name, task: script.task }, estimate);
    const signal = new AbortController().signal;
    const { outcome } = await driveRun(run, { chat: new ScriptedAgent(script), tools: kit.tools, signal });
    if (outcome !== "answered") throw new Error(`the script '${script.name}' ended ${outcome}`);
    return [...exportRun(store.database, script.name)].join("\n");
  } finally {
    kit.close();
    store.close();
  }
}

class ScriptedAgent implements Chat {
  #turn = 0;
  #next = 0;
  /** Ids are never used again, so one that was refused would be refused for ever. */
  readonly #tried = new Set<string>();

  constructor(private readonly script: Script) {}

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { text, call } = request.fork ? { text: summaryOf(request.messages) } : this.#say(request);
    const promptTokens = request.messages.reduce((sum, message) => sum + estimate(message), 0);
    const cacheUsage = {
      session: "",
      kept: 0,
      relocated: 0,
      computed: promptTokens,
      stale: 0,
      reason: "Scripted.",
    };
    yield { type: "prompt-planned", promptTokens, cacheUsage };
    yield { type: "text-delta", text };
    if (call) yield { type: "tool-call", call };
    const reason = call ? "tool_calls" : "stop";
    yield {
      type: "answer-finished",
      reason,
      promptTokens,
      completionTokens: 0,
      cacheUsage,
      promptMs: 0,
      generateMs: 0,
    };
  }

  #say({ messages }: ChatRequest): { text: string; call?: ToolCall } {
    this.#turn++;
    const call = (name: string, given: object): ToolCall => ({
      id: `call-${this.#turn}`,
      name,
      arguments: JSON.stringify(given),
    });
    const range = this.#range(messages.at(-1)!.content);
    if (range) {
      const text = `What I read in ${range.start} to ${range.end} is settled; I put it aside and keep a summary.`;
      return { text, call: call("compact_block", range) };
    }
    const move = this.script.moves[this.#next++];
    return move ? { text: move.say, call: call(move.tool, move.given) } : { text: this.script.answer };
  }

  /** What to compact, read from the catalog as a model would. */
  #range(catalog: string): { start: string; end: string } | undefined {
    const { compactsAt, keeps, newest } = this.script;
    const rows = [...catalog.matchAll(/^(b\d+) \w+ ([\d,]+) tokens:/gm)].map(([, id, tokens]) => ({
      id: id!,
      tokens: Number(tokens!.replaceAll(",", "")),
    }));
    if (rows.reduce((sum, { tokens }) => sum + tokens, 0) <= compactsAt) return undefined;
    const old = rows.slice(0, rows.length - keeps);
    const chosen = newest ? old.slice(Math.floor(old.length / 2)) : old;
    const [start, end] = [chosen[0]?.id, chosen.at(-1)?.id];
    if (!start || !end || start === end || this.#tried.has(`${start} ${end}`)) return undefined;
    this.#tried.add(`${start} ${end}`);
    return { start, end };
  }
}

/** Where each of the last results came from and its first lines of words, as far as the instruction allows. */
function summaryOf(messages: readonly Message[]): string {
  const most = Number(/stay below (\d+) tokens/.exec(messages.at(-1)!.content)?.[1] ?? 64);
  const calls = messages.flatMap(({ toolCalls = [] }) => toolCalls);
  const lines = messages
    .filter(({ role }) => role === "tool")
    .map(({ toolCallId, content }) => {
      const call = calls.find(({ id }) => id === toolCallId);
      return `${call?.name ?? "tool"} ${call?.arguments ?? ""}: ${wordsOf(content)}`;
    });
  let text = "";
  for (const line of lines.toReversed()) {
    if (estimate({ role: "user", content: text + line }) > 0.8 * most) break;
    text = `${line}\n${text}`;
  }
  return text || lines.at(-1)!.slice(0, Math.max(60, most));
}

/** The first sentence of comments or prose, without line numbers. */
function wordsOf(content: string): string {
  const lines = content.split("\n").map((line) => line.replace(/^\s*\d+[:|\s]\s*/, ""));
  const prose = lines.filter((line) => /^(\/\/|#|\*|[A-Z][a-z]+ )/.test(line)).slice(0, 3);
  return (prose.length > 0 ? prose : lines.slice(0, 2)).join(" ").slice(0, 240);
}
