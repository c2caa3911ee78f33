// The port between whoever speaks (server, harness) and whoever answers (the local session, a server over
// HTTP, a scripted fake). Messages live here; tokens, HTTP and the model do not.

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
  /** The arguments of a call are certain to fit `parameters`. */
  readonly strict?: boolean;
}

/**
 * auto: the model decides; required: one call or several and nothing else; none: the tools stay in the prompt, and
 * the answer is words; a name: one call of that tool.
 */
export type ToolChoice = "auto" | "none" | "required" | { readonly name: string };

/**
 * A tool that an answer may call. `parameters` stand in place of the tool's own for this answer: narrower ones, such
 * as the ids that there are now, while the prompt shows the same tools as ever.
 */
export interface Callable {
  readonly name: string;
  readonly parameters?: unknown;
}

/** What an answer is that calls no tool: any JSON object, or what fits a schema. */
export type AnswerFormat =
  | { readonly type: "json_object" }
  | { readonly type: "json_schema"; readonly schema: unknown; readonly strict: boolean };

/** What to keep of the resident cache after an edit: survivors too, the common prefix only, nothing. */
export type Reuse = "suffix" | "prefix" | "none";

/**
 * Which survivors behind an edit are recomputed at once: none; every surviving assistant message; those and
 * the first 256 survivors; the first assistant message only; the first k tokens (k >= 1); a leading fraction
 * (0 < f < 1).
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
  /** Absent: the rest of the window. */
  readonly maxTokens?: number;
  readonly stop?: readonly string[];
  /** 0 … 20 alternatives per token; absent: no logprobs. */
  readonly topLogprobs?: number;
  readonly session?: string;
  readonly reuse?: Reuse;
  readonly repair?: Repair;
  /** Everything behind the first edit is computed anew, so that nothing resident remembers what was cut. */
  readonly forget?: boolean;
  /**
   * A side question: answered on a fork of the session, which shares its leading cells and is released after the
   * answer. The session itself stays as it is. Not together with `forget`.
   */
  readonly fork?: boolean;
  /** Whether tokens may be proposed from the conversation's own text; the answer is the same. Default: the server's. */
  readonly lookup?: boolean;
  /** Whose request it is; sessions of another tenant do not exist for it. */
  readonly tenant?: string;
  readonly signal?: AbortSignal;
}

export interface ChatRequest extends AnswerOptions {
  readonly messages: readonly Message[];
  readonly tools?: readonly Tool[];
  /** Default: "auto". A Chat over HTTP may leave it and the next three to its server. */
  readonly toolChoice?: ToolChoice;
  /** The tools that may be called; the others stay in the prompt. Default: all. */
  readonly callable?: readonly Callable[];
  /** False: one call at most. Default: true. */
  readonly parallelToolCalls?: boolean;
  readonly format?: AnswerFormat;
}

/** A prompt without a template: text, or token ids taken as they are. */
export interface CompletionRequest extends AnswerOptions {
  readonly prompt: string | readonly number[];
}

/**
 * Where the prompt's tokens came from: kept + relocated + computed = promptTokens.
 * kept: resident, in front of the first edit. relocated: survivors behind it, shifted, approximate.
 * computed: run through the model now. stale: those of kept and relocated beyond the exact length.
 */
export interface CacheUsage {
  readonly session: string;
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  readonly stale: number;
  /** Why reuse stopped where it did, in a sentence. */
  readonly reason: string;
}

export interface TokenLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
}

/** tool_calls: the answer ends in tool calls, which wait for their results. */
export type FinishReason = "stop" | "length" | "tool_calls";

/**
 * Noun-verb events of one answer, in this order: prompt-planned, then text-delta and those of tool calls as they
 * come, answer-finished. A tool-call is sent once, when the call is complete. Who streams calls sends
 * tool-call-start and then tool-call-delta for each in front of it, index 0, 1, … in order; the deltas joined are
 * the call's arguments. An answer that ends inside a call has no tool-call for it, and the reason is "length".
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
      /** Tokens proposed from the conversation's own text: of the answer, and those that were not it. */
      readonly draftTokens?: { readonly accepted: number; readonly rejected: number };
      /** Milliseconds from request to first token, and for all tokens after it. */
      readonly promptMs: number;
      readonly generateMs: number;
      /** What the request asked for and was not enforced, a sentence each. */
      readonly warnings?: readonly string[];
    };

export interface Chat {
  /** Throws PocketError before the first event for a request that cannot be served. */
  chat(request: ChatRequest): AsyncIterable<ChatEvent>;
}
