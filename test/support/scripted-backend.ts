// A Backend with a fixed answer in the place of session and engine. It records requests; tests set delays and failures.
import { setTimeout as sleep } from "node:timers/promises";
import type {
  CacheUsage,
  ChatEvent,
  ChatRequest,
  CompletionRequest,
  TokenLogprob,
} from "../../src/chat/chat.ts";
import { type PocketError, pocketError } from "../../src/errors.ts";
import type {
  Backend,
  Counts,
  Health,
  ModelInfo,
  ServerOptions,
  SessionInfo,
  SessionMap,
  StepReport,
} from "../../src/server/backend.ts";

export const cacheUsage: CacheUsage = {
  session: "s-1",
  kept: 7,
  relocated: 20,
  computed: 5,
  stale: 20,
  reason: "Messages 1 to 3 were replaced.",
};

export const serverOptions: ServerOptions = {
  activeRequests: 2,
  queuedRequests: 2,
  bodyBytes: 64 * 1024 * 1024,
  apiKeys: [],
  allowedHosts: [],
  keepAliveMs: 10_000,
  logLevel: "silent",
};

export class ScriptedBackend implements Backend {
  model: ModelInfo = {
    id: "tiny",
    created: 1_700_000_000,
    context: 4096,
    vocab: 300,
    family: "qwen2",
    takesTools: true,
  };
  readonly asked: (ChatRequest | CompletionRequest)[] = [];
  /** Running answers. */
  live = 0;
  cancelled = 0;
  tokens: readonly string[] = ["Hel", "lo", " 🌍", "!"];
  /** Wait before the prompt is planned, before the first token, and between tokens. */
  planMs = 0;
  prefillMs = 0;
  tokenMs = 0;
  refusal: PocketError | null = null;
  failure: { readonly afterTokens: number; readonly error: Error } | null = null;
  broken: Health["broken"];
  stepped: (step: StepReport) => void = () => {};
  counted: Counts = {
    pagesFree: 10,
    pagesUsed: 6,
    pages: 16,
    sessions: 1,
    staleTokens: 20,
    repairedTokens: 3,
    evictions: 2,
    diskHits: 1,
    diskWrites: 4,
    diskBytes: 5000,
    preemptions: 0,
  };
  /** Session → tenant; absent: no tenant. */
  readonly tenants = new Map<string, string>();
  readonly resident = new Map<string, SessionInfo>([
    ["s-1", { id: "s-1", tokens: 32, exactTokens: 12, usedAt: 1_700_000_000_000, busy: false, named: true }],
  ]);

  chat(request: ChatRequest): AsyncIterable<ChatEvent> {
    return this.play(request);
  }

  complete(request: CompletionRequest): AsyncIterable<ChatEvent> {
    return this.play(request);
  }

  tokenize(text: string): readonly number[] {
    return [...new TextEncoder().encode(text)];
  }

  detokenize(tokens: readonly number[]): string {
    return new TextDecoder().decode(Uint8Array.from(tokens));
  }

  applyTemplate(messages: ChatRequest["messages"], tools?: ChatRequest["tools"]) {
    const offered = (tools ?? []).map((tool) => `<tool ${tool.name}>`).join("");
    const text = offered + messages.map(({ role, content }) => `<${role}>${content}`).join("");
    return { text, tokens: this.tokenize(text) };
  }

  sessions(tenant?: string): readonly SessionInfo[] {
    return [...this.resident.values()].filter(({ id }) => this.isOf(id, tenant));
  }

  session(id: string, tenant?: string): SessionMap {
    if (!this.resident.has(id) || !this.isOf(id, tenant)) throw pocketError("SESSION_NOT_FOUND", id);
    return {
      tokens: 32,
      stale: [{ start: 12, end: 32 }],
      spans: [
        { role: "system", start: 0, end: 12 },
        { role: "user", start: 12, end: 32 },
      ],
      shifts: [
        { shift: 0, start: 0, end: 12 },
        { shift: -5, start: 12, end: 32 },
      ],
    };
  }

  deleteSession(id: string, tenant?: string): void {
    if (!this.isOf(id, tenant) || !this.resident.delete(id)) throw pocketError("SESSION_NOT_FOUND", id);
  }

  counts(): Counts {
    return this.counted;
  }

  watchSteps(watcher: (step: StepReport) => void): void {
    this.stepped = watcher;
  }

  private isOf(id: string, tenant: string | undefined): boolean {
    return this.tenants.get(id) === tenant;
  }

  health(): Health {
    return { ...(this.broken && { broken: this.broken }), engine: { pagesFree: 10, pages: 16 } };
  }

  private async *play(request: ChatRequest | CompletionRequest): AsyncGenerator<ChatEvent> {
    this.asked.push(request);
    if (this.refusal) throw this.refusal;
    this.live++;
    try {
      await this.pause(this.planMs, request.signal);
      yield { type: "prompt-planned", promptTokens: 32, cacheUsage };
      await this.pause(this.prefillMs, request.signal);
      yield* this.answer(request);
    } finally {
      this.live--;
    }
  }

  private async *answer(request: ChatRequest | CompletionRequest): AsyncGenerator<ChatEvent> {
    const limit = Math.min(request.maxTokens ?? this.tokens.length, this.tokens.length);
    for (const [index, token] of this.tokens.slice(0, limit).entries()) {
      if (this.failure?.afterTokens === index) throw this.failure.error;
      await this.pause(this.tokenMs, request.signal);
      const top = { token, bytes: [...new TextEncoder().encode(token)], logprob: -0.5 };
      const count = request.topLogprobs;
      yield {
        type: "text-delta",
        text: token,
        ...(count !== undefined && { logprobs: [{ ...top, top: alternatives(top, count) }] }),
      };
    }
    yield {
      type: "answer-finished",
      reason: limit < this.tokens.length ? "length" : "stop",
      promptTokens: 32,
      completionTokens: limit,
      cacheUsage,
      promptMs: 12,
      generateMs: 30,
    };
  }

  private async pause(ms: number, signal?: AbortSignal): Promise<void> {
    if (signal?.aborted) throw this.leave();
    if (ms > 0) {
      await sleep(ms, undefined, signal ? { signal } : {}).catch(() => {
        throw this.leave();
      });
    }
  }

  private leave(): PocketError {
    this.cancelled++;
    return pocketError("CANCELLED");
  }
}

function alternatives(top: TokenLogprob, count: number): TokenLogprob[] {
  return Array.from({ length: count }, (_, rank) => ({
    ...top,
    token: rank === 0 ? top.token : `alt${rank}`,
  }));
}
