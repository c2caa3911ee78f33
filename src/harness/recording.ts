// An exported run (context/export.ts), read as a script to replay: the agent's message in each turn, the
// results of its tools, the summaries of its compressor.
import type { Message } from "../chat/chat.ts";
import { isContextTool } from "../context/tools.ts";
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

/** `name`: of the file, for errors. Throws BAD_RECORDING. */
export function readRecording(name: string, text: string): Recording {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const rows = lines.map((line, index) => {
    try {
      return JSON.parse(line) as Readonly<Record<string, unknown>>;
    } catch {
      throw pocketError("BAD_RECORDING", name, `line ${index + 1} is not JSON`);
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

/** The message without calls of the context tools; undefined if it had no other calls. */
export function withoutContextCalls(message: Message): Message | undefined {
  const { toolCalls = [], ...rest } = message;
  const others = toolCalls.filter((call) => !isContextTool(call.name));
  if (others.length > 0) return { ...rest, toolCalls: others };
  // A turn that had only context calls must not become the answer.
  return toolCalls.length > 0 ? undefined : rest;
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
