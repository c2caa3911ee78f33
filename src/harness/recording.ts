// A run that was exported, as a script to play again: what the agent said in each turn, what its tools gave back,
// what its compressor wrote. Read from the lines of export.ts; knows nothing of costs.
import type { Message, ToolCall } from "../chat/chat.ts";
import { compactTool, expandTool } from "../context/tools.ts";
import { pocketError } from "../errors.ts";

/** A user's message, or an assistant's with the results of its calls in their order. */
export type Step =
  | { readonly kind: "request"; readonly message: Message }
  | { readonly kind: "turn"; readonly message: Message; readonly results: ReadonlyMap<string, string> };

export interface Recording {
  readonly title: string;
  readonly steps: readonly Step[];
  /** Summaries by tag. */
  readonly summaries: ReadonlyMap<string, string>;
}

/** Throws BAD_RECORDING; `name` is how errors call it. */
export function readRecording(name: string, text: string): Recording {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const rows = lines.map((line, place) => {
    try {
      return JSON.parse(line) as Readonly<Record<string, unknown>>;
    } catch {
      throw pocketError("BAD_RECORDING", name, `line ${place + 1} is not JSON`);
    }
  });
  const messages = rows.filter(({ type }) => type === "message").map(({ message }) => message as Message);
  if (messages[0]?.role !== "user")
    throw pocketError("BAD_RECORDING", name, "it does not begin with a request");
  const records = rows.filter(({ type }) => type === "record");
  return {
    title: String(rows.find(({ type }) => type === "run")?.title ?? ""),
    steps: stepsOf(messages),
    summaries: new Map(records.map(({ tag, summary }) => [String(tag), String(summary)])),
  };
}

/** Without the calls that manage the context; undefined where nothing else was said. */
export function withoutContextCalls(message: Message): Message | undefined {
  const { toolCalls = [], ...rest } = message;
  const others = toolCalls.filter((call) => !isContextCall(call));
  if (others.length > 0) return { ...rest, toolCalls: others };
  // A turn that had calls must not become the answer.
  return toolCalls.length > 0 ? undefined : rest;
}

export function isContextCall({ name }: ToolCall): boolean {
  return name === compactTool.name || name === expandTool.name;
}

function stepsOf(messages: readonly Message[]): Step[] {
  const steps: Step[] = [];
  let results = new Map<string, string>();
  for (const message of messages) {
    if (message.role === "tool") results.set(message.toolCallId ?? "", message.content);
    else if (message.role === "assistant") {
      results = new Map();
      steps.push({ kind: "turn", message, results });
    } else steps.push({ kind: "request", message });
  }
  return steps;
}
