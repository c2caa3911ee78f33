// What makes one harness differ from another on the same loop: the tools by which the agent manages its
// context, what it is told about them, what stands behind the conversation in each request. Plain objects; the
// limits, the workspace tools and the forced final answer are the loop's and the same for all.
import type { AnswerOptions, Chat, ChatRequest, Message, Tool, ToolCall } from "../../chat/chat.ts";
import type { Conversation } from "../../context/conversation.ts";
import type { AgentEvent } from "../events.ts";
import type { Fresh } from "../tool.ts";

export interface Turn {
  readonly conversation: Conversation;
  readonly chat: Chat;
  /** All tools that the agent is offered. */
  readonly tools: readonly Tool[];
  /** Sampling and the like of the agent's calls. */
  readonly answer: AnswerOptions;
  /** Of the workspace's tools: what calls may still be made, besides those made before; see AgentTool. */
  readonly fresh: (name: string, made: readonly string[]) => Fresh;
  /** The window in tokens. */
  readonly limit: number;
  /** Tokens beside the history: what the template adds, the open exchange, copies to come. */
  readonly pending: number;
  /** Tokens that the next answer may need. */
  readonly reserve: number;
  readonly signal: AbortSignal;
  readonly emit: (event: AgentEvent) => void;
}

/** Kept by Chats that decode under constraints; elsewhere the tools refuse what does not fit. */
export type Steering = Pick<ChatRequest, "toolChoice" | "callable" | "parallelToolCalls">;

export interface CallResult {
  readonly text: string;
  /** Tokens that `after` will append. */
  readonly tokens?: number;
  /** Done once the exchange is appended. */
  readonly after?: () => void;
  /** Ends the run; this is what it comes to. */
  readonly answer?: string;
}

export interface Policy {
  readonly name: string;
  /** Added to the instructions; empty for none. */
  readonly prompt: string;
  /** Offered in front of the workspace's. */
  readonly tools: readonly Tool[];
  /** Last message of a request, never stored. */
  trailer(turn: Turn): Message | undefined;
  /** What the next answer has to be; asked behind `trailer`. Absent or undefined: what the agent likes. */
  steer?(turn: Turn): Steering | undefined;
  /** A call of one of its tools. Rejects with operating errors. */
  call(call: ToolCall, turn: Turn): Promise<CallResult>;
}
