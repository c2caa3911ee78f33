// A policy decides how an agent's history is rewritten: which context tools the agent has, what its
// instructions say about them, and which message ends each request. The loop, the limits, the workspace tools
// and the forced final answer are the same for all policies.
import type { AnswerOptions, Chat, ChatRequest, Message, Tool, ToolCall } from "../../chat/chat.ts";
import type { Conversation } from "../../context/conversation.ts";
import type { AgentEvent } from "../events.ts";
import type { RemainingCalls } from "../tool.ts";

/** What a policy sees of the current turn. */
export interface Turn {
  readonly conversation: Conversation;
  readonly chat: Chat;
  /** All tools that the agent is offered. */
  readonly tools: readonly Tool[];
  /** Sampling, session and reuse of the agent's calls. */
  readonly answer: AnswerOptions;
  /** Calls of a workspace tool that remain after those with the arguments `made`; see AgentTool. */
  readonly remaining: (name: string, made: readonly string[]) => RemainingCalls;
  /** The window in tokens. */
  readonly limit: number;
  /**
   * Tokens in addition to the history: template and tools, the open exchange, copies that an expand will
   * append.
   */
  readonly pending: number;
  /** Tokens that the next answer may need. */
  readonly reserve: number;
  readonly signal: AbortSignal;
  readonly emit: (event: AgentEvent) => void;
}

/** Enforced by a Chat that decodes under constraints; on other Chats the tools refuse invalid calls. */
export type Steering = Pick<ChatRequest, "toolChoice" | "callable" | "parallelToolCalls">;

export interface CallResult {
  readonly text: string;
  /** Tokens that `after` will append. */
  readonly tokens?: number;
  /** Called once the exchange has been appended. */
  readonly after?: () => void;
  /** Ends the run with this answer. */
  readonly answer?: string;
}

export interface Policy {
  readonly name: string;
  /** Added to the instructions; empty for none. */
  readonly prompt: string;
  /** Offered before the tools of the workspace. */
  readonly tools: readonly Tool[];
  /** Last message of a request; never stored. */
  trailer(turn: Turn): Message | undefined;
  /** Constraints on the next answer. Called after `trailer`. Absent or undefined: none. */
  steer?(turn: Turn): Steering | undefined;
  /** Runs a call of one of the policy's own tools. Rejects with operating errors. */
  call(call: ToolCall, turn: Turn): Promise<CallResult>;
}

/** The system message: the same text for every policy, then the policy's own prompt. */
export function instructionsOf(policy: Policy): Message[] {
  const prompt = [
    "You are an agent that works on the user's task with tools. Work step by step: say in one or two sentences what you do next, call tools, look at their results.",
    "Tool results are all that you know of the files; do not guess what is in them. When a call fails, read why and try something else.",
    "When the task is done, answer without calling a tool: that answer ends the task.",
    ...(policy.prompt === "" ? [] : [policy.prompt]),
  ];
  return [{ role: "system", content: prompt.join("\n") }];
}
