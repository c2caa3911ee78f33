// A Chat that answers from a script, one line per call, and records its requests; and builders of
// conversations.
import type { Chat, ChatEvent, ChatRequest, FinishReason, Message, ToolCall } from "../../src/chat/chat.ts";
import { Compressor } from "../../src/context/compressor.ts";
import { Conversation, type ConversationOptions } from "../../src/context/conversation.ts";

export interface Line {
  readonly text?: string;
  readonly calls?: readonly ToolCall[];
  readonly reason?: FinishReason;
  readonly error?: Error;
}

export type Script = readonly Line[] | ((request: ChatRequest, turn: number) => Line);

/** One token per character of content and of call arguments, plus 10 per message. */
export function count({ content, toolCalls = [] }: Message): number {
  return 10 + content.length + toolCalls.reduce((sum, call) => sum + call.arguments.length, 0);
}

export class ScriptedChat implements Chat {
  readonly requests: ChatRequest[] = [];

  constructor(private readonly script: Script) {}

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const turn = this.requests.push(request) - 1;
    const line = typeof this.script === "function" ? this.script(request, turn) : this.script[turn];
    if (!line) throw new Error(`The script has no line for call ${turn}.`);
    if (line.error) throw line.error;
    const promptTokens = request.messages.reduce((sum, message) => sum + count(message), 0);
    const cacheUsage = {
      session: "s",
      kept: 0,
      relocated: 0,
      computed: promptTokens,
      stale: 0,
      reason: "Scripted.",
    };
    yield { type: "prompt-planned", promptTokens, cacheUsage };
    for (const text of line.text?.match(/[\s\S]{1,7}/g) ?? []) yield { type: "text-delta", text };
    for (const call of line.calls ?? []) yield { type: "tool-call", call };
    yield {
      type: "answer-finished",
      reason: line.reason ?? (line.calls ? "tool_calls" : "stop"),
      promptTokens,
      completionTokens: line.text?.length ?? 0,
      cacheUsage,
      promptMs: 1,
      generateMs: 1,
    };
  }
}

export const instructions: readonly Message[] = [{ role: "system", content: "You are an agent." }];

export function conversationOf(options: Partial<ConversationOptions> = {}): Conversation {
  return new Conversation({ instructions, count, ...options });
}

/** An exchange with one result per call. Each message contains `name`, so that all messages differ. */
export function exchangeOf(name: string, size = 200, calls = 1): Message[] {
  const ids = Array.from({ length: calls }, (_, index) => `${name}.${index}`);
  const toolCalls = ids.map((id) => ({ id, name: "read_file", arguments: `{"path":"${name}"}` }));
  return [
    { role: "assistant", content: `I read ${name}.`, ...(calls > 0 ? { toolCalls } : {}) },
    ...ids.map(
      (toolCallId): Message => ({ role: "tool", content: `${toolCallId} ${"x".repeat(size)}`, toolCallId }),
    ),
  ];
}

/** A conversation with a request and that many exchanges, named like their blocks. */
export function filled(exchanges: number, options: Partial<ConversationOptions> = {}): Conversation {
  const conversation = conversationOf(options);
  conversation.request({ role: "user", content: "Find the answer." });
  for (let number = 1; number <= exchanges; number++) {
    conversation.exchange(exchangeOf(`b${String(number).padStart(3, "0")}`));
  }
  return conversation;
}

/** A compressor whose summaries are all this text. */
export function summarising(text = "What was read.") {
  return new Compressor({ chat: new ScriptedChat(() => ({ text })) });
}
