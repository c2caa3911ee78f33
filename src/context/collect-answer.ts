// One answer of a Chat gathered into a message, for callers that have no use for its pieces: the compressor and
// the agent loop. What is done with a bad answer is theirs.

import type { ChatEvent, Message, ToolCall } from "../chat/chat.ts";
import { pocketError } from "../errors.ts";

export type AnswerFinished = Extract<ChatEvent, { type: "answer-finished" }>;

export interface ChatAnswer {
  /** Role assistant; toolCalls only where there are some. */
  readonly message: Message;
  readonly finish: AnswerFinished;
}

/** Rejects as the events do, and with INTERNAL when they end without an answer-finished. */
export async function collectAnswer(
  events: AsyncIterable<ChatEvent>,
  onEvent: (event: ChatEvent) => void = () => {},
): Promise<ChatAnswer> {
  let content = "";
  const toolCalls: ToolCall[] = [];
  for await (const event of events) {
    onEvent(event);
    if (event.type === "text-delta") content += event.text;
    else if (event.type === "tool-call") toolCalls.push(event.call);
    else if (event.type === "answer-finished") {
      const calls = toolCalls.length > 0 ? { toolCalls } : {};
      return { message: { role: "assistant", content, ...calls }, finish: event };
    }
  }
  throw pocketError("INTERNAL", "The answer ended without a finish event.");
}
