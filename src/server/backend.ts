// What the server needs from the stack behind it, and what it is told at the start. cli/serve.ts fills
// both in with the real session and engine; tests fill them in with a scripted fake. No engine type and no
// configuration key appears here.
import type { Chat, ChatEvent, CompletionRequest, Message, Tool } from "../chat/chat.ts";
import type { LiveRuns } from "../harness/live-runs.ts";
import type { SessionInfo, SessionMap, StepReport } from "../session/session-info.ts";

export type { CellRange, SessionInfo, SessionMap, StepReport } from "../session/session-info.ts";

export interface ModelInfo {
  readonly id: string;
  /** Seconds since 1970 at which the model was imported. */
  readonly created: number;
  /** Tokens a conversation may have, prompt and answer together. */
  readonly context: number;
  readonly vocab: number;
  readonly family: string;
  /** Whether the chat template shows tools to the model. */
  readonly takesTools: boolean;
}

/** What is resident and what became of it; counts since the start unless they say "now". */
export interface Counts {
  /** Now: no cell stands in it; one does; it is in the pool. */
  readonly pagesFree: number;
  readonly pagesUsed: number;
  readonly pages: number;
  /** Now. */
  readonly sessions: number;
  /** Now: cells that are approximate, over all sessions. */
  readonly staleTokens: number;
  readonly repairedTokens: number;
  /** Sessions let go of to make room. */
  readonly evictions: number;
  /** Sessions that came back from a file; were written to one; bytes of these files now. */
  readonly diskHits: number;
  readonly diskWrites: number;
  readonly diskBytes: number;
  /** Answers that had to wait, or to be computed again, for want of pages. */
  readonly preemptions: number;
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
  /** Those of the tenant only. */
  sessions(tenant?: string): readonly SessionInfo[];
  /** Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  session(id: string, tenant?: string): SessionMap;
  /** Ends an answer under way with CANCELLED. Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  deleteSession(id: string, tenant?: string): void;
  health(): Health;
  counts(): Counts;
  /** Calls `watcher` after every step from here on. */
  watchSteps(watcher: (step: StepReport) => void): void;
}

export interface ServerOptions {
  /** Requests served at the same time; the others wait. */
  readonly activeRequests: number;
  /** Requests that may wait; the next one gets 429. */
  readonly queuedRequests: number;
  readonly bodyBytes: number;
  /** Empty: no key is asked for. Each key sees its own sessions only. */
  readonly apiKeys: readonly string[];
  /** Hosts and origins besides loopback and plain IP addresses; `*` allows all. */
  readonly allowedHosts: readonly string[];
  /** Milliseconds between comments in a silent stream. */
  readonly keepAliveMs: number;
  /** Absent: agent runs are off. */
  readonly agent?: { readonly runs: LiveRuns; readonly withoutKey: boolean };
  /** pino level: trace, debug, info, warn, error, fatal or silent. */
  readonly logLevel: string;
}
