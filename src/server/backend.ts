// What the server needs from the house behind it, and what it is told at the start. commands/serve.ts fills
// both in with the real session and engine; tests fill them in with a scripted fake. No engine type and no
// configuration key appears here.
import type { Chat, ChatEvent, CompletionRequest, Message, Tool } from "../context/chat.ts";

export interface ModelInfo {
  readonly id: string;
  /** Seconds since 1970 at which the model was imported. */
  readonly created: number;
  /** Tokens a conversation may have, prompt and answer together. */
  readonly context: number;
  readonly vocab: number;
  readonly family: string;
}

/** One resident conversation, as GET /v1/sessions shows it. */
export interface SessionInfo {
  readonly id: string;
  /** Tokens in the cache. */
  readonly tokens: number;
  /** The leading ones that equal a cold prefill. */
  readonly exactTokens: number;
  /** Milliseconds since 1970 of the last request. */
  readonly usedAt: number;
  readonly busy: boolean;
  /** By a client; else the server made the name up. */
  readonly named: boolean;
}

export interface Health {
  /** Present once an invariant broke: the sentence, and when (milliseconds since 1970). */
  readonly broken?: { readonly message: string; readonly since: number };
  /** Plain numbers and words about the engine; shown as they are. */
  readonly engine: Readonly<Record<string, number | string>>;
}

export interface TokenizeOptions {
  /** Put the model's first token in front, if it has one. */
  readonly addSpecial: boolean;
  /** Control tokens that `text` spells out become their ids. */
  readonly parseSpecial: boolean;
}

export interface RenderedPrompt {
  readonly text: string;
  readonly tokens: readonly number[];
}

/** Every call throws PocketError; an iteration rejects with one. */
export interface Backend extends Chat {
  readonly model: ModelInfo;
  /** The same events as chat(), for a prompt without a template. */
  complete(request: CompletionRequest): AsyncIterable<ChatEvent>;
  tokenize(text: string, options: TokenizeOptions): readonly number[];
  detokenize(tokens: readonly number[]): string;
  applyTemplate(messages: readonly Message[], tools?: readonly Tool[]): RenderedPrompt;
  sessions(): readonly SessionInfo[];
  /** Ends an answer under way with CANCELLED. Throws SESSION_NOT_FOUND. */
  deleteSession(id: string): void;
  health(): Health;
}

export interface ServerOptions {
  /** Requests served at the same time; the others wait. */
  readonly activeRequests: number;
  /** Requests that may wait; the next one gets 429. */
  readonly queuedRequests: number;
  readonly bodyBytes: number;
  /** Absent: no key is asked for. */
  readonly apiKey?: string;
  /** Hosts and origins besides loopback and plain IP addresses; `*` allows all. */
  readonly allowedHosts: readonly string[];
  /** Milliseconds between comments in a silent stream. */
  readonly keepAliveMs: number;
  /** pino level: trace, debug, info, warn, error, fatal or silent. */
  readonly logLevel: string;
}
