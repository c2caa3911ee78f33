// The agent loop: ask the model, run its calls, append the exchange, until there is an answer. The policy
// rewrites the history; the limits end the run. The loop keeps no state except the conversation, so an
// interrupted run continues by running the loop again.

import type { AnswerOptions, Chat, Message, Tool, ToolCall } from "../chat/chat.ts";
import { type Exchange, tokensOf } from "../context/block.ts";
import { type ChatAnswer, collectAnswer } from "../context/collect-answer.ts";
import type { Conversation } from "../context/conversation.ts";
import { PocketError } from "../errors.ts";
import type { AgentEvent, Outcome } from "./events.ts";
import { finalNotice, type Limits, repeatedCall, retryNotice, tooLarge } from "./limits.ts";
import type { Policy, Turn } from "./policies/policy.ts";
import { type AgentTool, runTool } from "./tool.ts";
import { addCall, type Caller, emptyUsage, type Usage } from "./usage.ts";

export interface AgentOptions {
  readonly chat: Chat;
  readonly policy: Policy;
  /** Its last block is the request, or what an interrupted run left. */
  readonly conversation: Conversation;
  readonly tools: readonly AgentTool[];
  readonly limits: Limits;
  /** Sampling, session, reuse, repair of the agent's calls. */
  readonly answer?: Omit<AnswerOptions, "maxTokens" | "signal">;
  readonly signal?: AbortSignal;
  readonly onEvent?: (event: AgentEvent) => void;
}

export interface AgentResult {
  readonly outcome: Outcome;
  readonly answer: string;
  readonly usage: Usage;
}

export class AgentLoop {
  readonly #specs: readonly Tool[];
  readonly #signal: AbortSignal;
  #usage: Usage = emptyUsage;
  #turn = 0;
  /**
   * Prompt tokens in addition to those of the messages: tools and template. An estimate until the first
   * answer.
   */
  #overhead: number;

  constructor(private readonly options: AgentOptions) {
    const { policy, tools, conversation, signal } = options;
    this.#specs = [...policy.tools, ...tools.map(({ spec }) => spec)];
    this.#signal = signal ?? new AbortController().signal;
    const content = this.#specs.length > 0 ? JSON.stringify(this.#specs) : "";
    this.#overhead = content ? conversation.history.count({ role: "system", content }) : 0;
  }

  /**
   * Call once. Rejects with operating errors of the Chat and the journal, and with the signal's reason; the
   * conversation then has every complete exchange.
   */
  async run(): Promise<AgentResult> {
    const { maxTurns } = this.options.limits;
    let flaw: string | undefined;
    while (this.#turn < maxTurns - 1 && !this.#isFull()) {
      const answer = await this.#ask(flaw ? retryNotice(flaw) : undefined);
      if (!answer) return this.#finish("overflow", this.#lastText());
      const isRetry = flaw !== undefined;
      flaw = flawOf(answer);
      if (flaw) {
        this.#emit({ type: "answer-dropped", turn: this.#turn, why: flaw });
        if (isRetry) break;
        continue;
      }
      const final = await this.#act(answer.message);
      if (final !== undefined) return this.#finish("answered", final);
    }
    return this.#force();
  }

  /** Tokens of the next prompt, without its trailer. */
  get #used(): number {
    return this.options.conversation.history.tokens + this.#overhead;
  }

  #isFull(): boolean {
    const { window, finalFraction } = this.options.limits;
    return this.#used >= finalFraction * window;
  }

  /** Undefined if the server refuses the prompt as too long. */
  async #ask(notice: Message | undefined, isFinal = false): Promise<ChatAnswer | undefined> {
    const { chat, conversation, limits, policy, answer } = this.options;
    this.#signal.throwIfAborted();
    this.#emit({ type: "turn-started", turn: ++this.#turn, used: this.#used, limit: limits.window });
    const turn = this.#turnOf(0);
    const trailer = isFinal ? undefined : policy.trailer(turn);
    const steering = isFinal || this.#specs.length === 0 ? undefined : policy.steer?.(turn);
    const messages = [
      ...conversation.history.messages(),
      ...[trailer, notice].filter((one) => one !== undefined),
    ];
    const counted = tokensOf(messages, conversation.history.count);
    const free = limits.window - counted - this.#overhead;
    const request = {
      ...answer,
      messages,
      ...(this.#specs.length > 0 ? { tools: this.#specs } : {}),
      ...steering,
      maxTokens: Math.max(1, Math.min(limits.answerTokens, free)),
      signal: this.#signal,
    };
    try {
      const answered = await collectAnswer(chat.chat(request), (event) => {
        if (event.type === "text-delta") this.#emit({ type: "text-delta", text: event.text });
      });
      this.#count("agent", answered.finish);
      this.#overhead = Math.max(0, answered.finish.promptTokens - counted);
      this.#emit({ type: "answer-finished", turn: this.#turn, finish: answered.finish });
      return answered;
    } catch (cause) {
      if (cause instanceof PocketError && cause.code === "CONTEXT_LENGTH_EXCEEDED") return undefined;
      throw cause;
    }
  }

  /**
   * Runs the calls in order, appends the exchange, then runs what the calls deferred (CallResult.after).
   * Returns the final answer if there is one: the text of a message without calls, or the `answer` of a call.
   */
  async #act(message: Message): Promise<string | undefined> {
    const { conversation } = this.options;
    const messages: Message[] = [message];
    const deferred: (() => void)[] = [];
    let open = conversation.history.count(message);
    let final = message.toolCalls ? undefined : message.content;
    for (const call of message.toolCalls ?? []) {
      this.#emit({ type: "tool-called", call });
      const startMs = performance.now();
      const { text, tokens = 0, after, answer } = await this.#call(call, open);
      final = answer ?? final;
      const result: Message = { role: "tool", content: text, toolCallId: call.id, name: call.name };
      open += conversation.history.count(result) + tokens;
      if (after) deferred.push(after);
      messages.push(result);
      this.#emit({ type: "tool-returned", call, text, ms: performance.now() - startMs });
    }
    const block: Exchange = conversation.exchange(messages);
    this.#emit({ type: "block-appended", block: block.id, kind: block.kind, tokens: block.tokens });
    for (const run of deferred) run();
    // The history ends with the answer as a message, also if a call gave it.
    if (final !== undefined && message.toolCalls) await this.#act({ role: "assistant", content: final });
    return final;
  }

  async #call(call: ToolCall, open: number): ReturnType<Policy["call"]> {
    const { policy, tools, conversation, limits } = this.options;
    const turn = this.#turnOf(open);
    if (policy.tools.some(({ name }) => name === call.name)) return policy.call(call, turn);
    const text = await runTool(tools, call, this.#signal);
    if (isRepeated(conversation, call, text)) return { text: repeatedCall(call.name) };
    const tokens = conversation.history.count({ role: "tool", content: text });
    const left = limits.window - this.#used - open - turn.reserve;
    return tokens > left ? { text: tooLarge(call.name, tokens, left) } : { text };
  }

  #turnOf(open: number): Turn {
    const { chat, conversation, limits, answer, tools } = this.options;
    return {
      conversation,
      chat,
      tools: this.#specs,
      answer: answer ?? {},
      remaining: (name, made) => tools.find(({ spec }) => spec.name === name)?.remaining?.(made) ?? "any",
      limit: limits.window,
      pending: this.#overhead + open,
      // The final answer must fit after everything that is added now.
      reserve: Math.min(limits.answerTokens, Math.ceil((1 - limits.finalFraction) * limits.window)),
      signal: this.#signal,
      emit: (event) => {
        if (event.type === "compressor-finished") {
          for (const finish of event.finishes) this.#count("compressor", finish);
        }
        this.#emit(event);
      },
    };
  }

  /** Asks for the final answer. Its tool calls are not run. */
  async #force(): Promise<AgentResult> {
    const answer = await this.#ask(finalNotice, true);
    if (!answer) return this.#finish("overflow", this.#lastText());
    const { content } = answer.message;
    await this.#act({ role: "assistant", content });
    return this.#finish("forced", content);
  }

  #finish(outcome: Outcome, answer: string): AgentResult {
    const result = { outcome, answer, usage: this.#usage };
    this.#emit({ type: "run-finished", ...result });
    return result;
  }

  /** The last text of the agent; empty if it wrote none. */
  #lastText(): string {
    const messages = this.options.conversation.history.messages();
    return (
      messages.findLast(({ role, content }) => role === "assistant" && content.trim() !== "")?.content ?? ""
    );
  }

  #count(caller: Caller, finish: ChatAnswer["finish"]): void {
    this.#usage = addCall(this.#usage, caller, finish);
  }

  #emit(event: AgentEvent): void {
    this.options.onEvent?.(event);
  }
}

/**
 * Whether the latest exchange has the same call with the same result. Skips exchanges whose result was
 * `repeatedCall`.
 */
function isRepeated({ history }: Conversation, { name, arguments: json }: ToolCall, text: string): boolean {
  for (const block of history.blocks.toReversed()) {
    if (block.kind !== "exchange") return false;
    const [first, ...results] = block.originals.map(({ message }) => message);
    const equal = first!.toolCalls?.find((call) => call.name === name && call.arguments === json);
    const result = equal && results.find(({ toolCallId }) => toolCallId === equal.id)?.content;
    if (result !== repeatedCall(name)) return result === text;
  }
  return false;
}

/** Why the answer cannot be kept. */
function flawOf({ message, finish }: ChatAnswer): string | undefined {
  if (finish.reason === "length") return "was cut off for its length";
  return message.content.trim() === "" && !message.toolCalls ? "was empty" : undefined;
}
