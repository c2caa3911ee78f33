// What the server needs from session and engine, and its own options. cli/serve.ts provides the real ones, tests a
// scripted one. No engine type and no configuration key appears here.
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

/** Cache state and counters; counted since the start unless marked "now". */
export interface Counts {
  /** Now: pages without cells, with cells, in total. */
  readonly pagesFree: number;
  readonly pagesUsed: number;
  readonly pages: number;
  /** Now. */
  readonly sessions: number;
  /** Now: cells that are approximate, over all sessions. */
  readonly staleTokens: number;
  readonly repairedTokens: number;
  /** Sessions evicted for their pages. */
  readonly evictions: number;
  /** Sessions restored from a file, sessions written to one, bytes of the files now. */
  readonly diskHits: number;
  readonly diskWrites: number;
  readonly diskBytes: number;
  /** Answers preempted or recomputed for lack of pages. */
  readonly preemptions: number;
}

export interface Health {
  /** Present after an invariant broke: which one, and when (milliseconds since 1970). */
  readonly broken?: { readonly message: string; readonly since: number };
  /** Engine numbers and names for GET /health. */
  readonly engine: Readonly<Record<string, number | string>>;
}

export interface TokenizeOptions {
  /** Prepend the BOS token if the model has one. */
  readonly addSpecial: boolean;
  /** Control tokens written in `text` become their ids. */
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
  /** Sessions of the tenant only. */
  sessions(tenant?: string): readonly SessionInfo[];
  /** Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  session(id: string, tenant?: string): SessionMap;
  /** Ends a running answer with CANCELLED. Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  deleteSession(id: string, tenant?: string): void;
  health(): Health;
  counts(): Counts;
  /** Calls `watcher` after every step from here on. */
  watchSteps(watcher: (step: StepReport) => void): void;
}

export interface ServerOptions {
  /** Requests served at the same time. */
  readonly activeRequests: number;
  /** Requests that may wait; a further one gets 429. */
  readonly queuedRequests: number;
  readonly bodyBytes: number;
  /** Empty: no key is needed. Each key sees its own sessions only. */
  readonly apiKeys: readonly string[];
  /** Hosts and origins besides loopback and plain IP addresses; `*` allows all. */
  readonly allowedHosts: readonly string[];
  /** Milliseconds between keep-alive comments in a silent stream. */
  readonly keepAliveMs: number;
  /** Absent: agent runs are off. */
  readonly agent?: { readonly runs: LiveRuns; readonly withoutKey: boolean };
  /** pino level: trace, debug, info, warn, error, fatal or silent. */
  readonly logLevel: string;
}
