// The Chat port: requests and answers as messages and events. Callers are the server and the harness; implementations
// are the local session and an OpenAI server over HTTP. Types only; it imports nothing.

export type Role = "system" | "user" | "assistant" | "tool";

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, as the model wrote it. */
  readonly arguments: string;
}

export interface Message {
  readonly role: Role;
  readonly content: string;
  /** Reasoning of an assistant message, without its tags. */
  readonly reasoning?: string;
  readonly toolCalls?: readonly ToolCall[];
  readonly toolCallId?: string;
  readonly name?: string;
}

export interface Tool {
  readonly name: string;
  readonly description?: string;
  /** JSON schema of the arguments. */
  readonly parameters?: unknown;
  /** True: the arguments of every call match `parameters`. */
  readonly strict?: boolean;
}

/**
 * auto: the model decides; required: at least one call and no text; none: the tools stay in the prompt, and the answer
 * is text; a name: one call of that tool.
 */
export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

/**
 * A tool that an answer may call. `parameters` replace the tool's own schema for this answer, for example to limit
 * ids to the current ones, while the tools in the prompt stay the same.
 */
export interface Callable {
  readonly name: string;
  readonly parameters?: unknown;
}

/** Format of an answer that calls no tool: any JSON object, or one that matches a schema. */
export type AnswerFormat =
  | { readonly type: "json_object" }
  | { readonly type: "json_schema"; readonly schema: unknown; readonly strict: boolean };

/** What is reused of the resident cells after an edit: prefix and survivors, the common prefix only, nothing. */
export type Reuse = "suffix" | "prefix" | "none";

/**
 * Which survivors behind an edit are recomputed at once: none; every assistant message; those and the first 256 tokens;
 * the first assistant message; the first k tokens (k >= 1); a leading fraction (0 < f < 1).
 */
export type Repair = "none" | "assistant" | "assistant+256" | "first-assistant" | number;

export interface SamplingOptions {
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly frequencyPenalty?: number;
  readonly presencePenalty?: number;
  readonly seed?: number;
}

export interface AnswerOptions extends SamplingOptions {
  /** Default: the rest of the context. */
  readonly maxTokens?: number;
  readonly stop?: readonly string[];
  /** 0 … 20 alternatives per token; absent: no logprobs. */
  readonly topLogprobs?: number;
  readonly session?: string;
  readonly reuse?: Reuse;
  readonly repair?: Repair;
  /** True: everything behind the first edit is recomputed, so that no resident cell depends on the cut text. */
  readonly forget?: boolean;
  /**
   * True: a side question, answered on a fork that shares the session's leading cells and is released after the answer.
   * The session does not change. Not together with `forget`.
   */
  readonly fork?: boolean;
  /**
   * Prompt lookup: drafts tokens from the conversation's text; the answer is the same. Default: the server's setting.
   */
  readonly lookup?: boolean;
  /** Owner of the request; it cannot see sessions of other tenants. */
  readonly tenant?: string;
  readonly signal?: AbortSignal;
}

export interface ChatRequest extends AnswerOptions {
  readonly messages: readonly Message[];
  readonly tools?: readonly Tool[];
  /** Default: "auto". A Chat over HTTP may leave it and the next three fields to its server. */
  readonly toolChoice?: ToolChoice;
  /** The tools that may be called; the others stay in the prompt. Default: all. */
  readonly callable?: readonly Callable[];
  /** False: one call at most. Default: true. */
  readonly parallelToolCalls?: boolean;
  readonly format?: AnswerFormat;
}

/** A prompt without a template: text or token ids. */
export interface CompletionRequest extends AnswerOptions {
  readonly prompt: string | readonly number[];
}

/**
 * Origin of the prompt's tokens: kept + relocated + computed = promptTokens.
 * kept: resident, in front of the first edit. relocated: survivors behind it, shifted, approximate.
 * computed: computed for this request. stale: those of kept and relocated beyond the exact length.
 */
export interface CacheUsage {
  readonly session: string;
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  readonly stale: number;
  /** Where and why reuse stopped, a sentence. */
  readonly reason: string;
}

export interface TokenLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
}

/** tool_calls: the answer ends in tool calls, whose results the next request gives. */
export type FinishReason = "stop" | "length" | "tool_calls";

/**
 * Events of one answer, in this order: prompt-planned, then text-delta and the events of tool calls, then
 * answer-finished. A tool-call is sent once, when the call is complete. An implementation that streams calls sends
 * tool-call-start and tool-call-delta before it, index 0, 1, … in order; the concatenated deltas are the arguments. An
 * answer that ends inside a call has no tool-call event for it, and its reason is "length".
 */
export type ChatEvent =
  | { readonly type: "prompt-planned"; readonly promptTokens: number; readonly cacheUsage: CacheUsage }
  | {
      readonly type: "text-delta";
      readonly text: string;
      readonly logprobs?: readonly (TokenLogprob & { readonly top: readonly TokenLogprob[] })[];
    }
  | {
      readonly type: "tool-call-start";
      readonly index: number;
      readonly id: string;
      readonly name: string;
    }
  | { readonly type: "tool-call-delta"; readonly index: number; readonly arguments: string }
  | { readonly type: "tool-call"; readonly call: ToolCall }
  | {
      readonly type: "answer-finished";
      readonly reason: FinishReason;
      readonly promptTokens: number;
      readonly completionTokens: number;
      readonly cacheUsage: CacheUsage;
      /** Draft tokens of prompt lookup that were accepted and rejected. */
      readonly draftTokens?: { readonly accepted: number; readonly rejected: number };
      /** Milliseconds from request to first token, and for all tokens after it. */
      readonly promptMs: number;
      readonly generateMs: number;
      /** Constraints of the request that were not enforced, a sentence each. */
      readonly warnings?: readonly string[];
    };

export interface Chat {
  /** Throws PocketError before the first event if the request cannot be served. */
  chat(request: ChatRequest): AsyncIterable<ChatEvent>;
}
