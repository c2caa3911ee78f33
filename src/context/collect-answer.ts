// Collects the events of one answer into a message, for callers that do not stream: the compressor and the
// agent loop.

import type { ChatEvent, Message, ToolCall } from "../chat/chat.ts";
import { pocketError } from "../errors.ts";

/** The last event of an answer: its reason, tokens, cache usage and times. */
export type AnswerFinished = Extract<ChatEvent, { type: "answer-finished" }>;

/** One whole answer of a Chat. */
export interface ChatAnswer {
  /** Role assistant. `toolCalls` is absent if there are none. */
  readonly message: Message;
  readonly finish: AnswerFinished;
}

/** Rejects with the errors of `events`, and with INTERNAL if they end without answer-finished. */
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
