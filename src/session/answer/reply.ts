// Serves one request: checks out a session, runs its job, emits the events of the Chat port in order, and checks the
// session in whether the answer ends, fails, is aborted or is no longer read.
import type { CacheUsage, ChatEvent, FinishReason } from "../../chat/chat.ts";
import type { EnginePort, Generated } from "../../engine/job.ts";
import { pocketError } from "../../errors.ts";
import { lengthOf } from "../../text/span.ts";
import { staleTokens } from "../planner/edit-planner.ts";
import type { CheckoutRequest } from "../residency/session-router.ts";
import type { Lease, Sessions } from "../residency/sessions.ts";
import type { AnswerTokenCache } from "./answer-token-cache.ts";
import { Generation, type GenerationOptions } from "./generation.ts";
import type { OutputProcessor } from "./output-processor.ts";
import { settledWithin } from "./settled-within.ts";

export interface ReplyOptions {
  readonly sessions: Sessions;
  readonly answerTokens: AnswerTokenCache;
  readonly engine: Pick<EnginePort, "pageSize">;
  readonly output: OutputProcessor;
  readonly checkout: Omit<CheckoutRequest, "abort" | "signal">;
  readonly generation: GenerationOptions;
  /** The client's. */
  readonly signal: AbortSignal | undefined;
}

/**
 * Milliseconds that the first event is held back. The engine may refuse a job up to one step after it was started; an
 * error before the first event becomes an HTTP status. A longer delay would show a client nothing during a prefill.
 */
const refusalMs = 250;
/** Tokens of an answer for which pages are freed in advance; more are freed when they are needed. */
const answerReserve = 256;

export class Reply {
  readonly #stop = new AbortController();
  readonly #clock = new Clock();
  #completionTokens = 0;
  #accepted = 0;
  #rejected = 0;
  #finish: FinishReason = "length";

  constructor(private readonly options: ReplyOptions) {}

  /** To be iterated once. Throws PocketError, before the first event if the request cannot be served. */
  async *events(): AsyncGenerator<ChatEvent, void, undefined> {
    const { sessions, signal, generation: generationOptions } = this.options;
    if (signal?.aborted) throw pocketError("CANCELLED");
    const abort = () => this.#stop.abort();
    signal?.addEventListener("abort", abort, { once: true });
    let stale = 0;
    let lease: Lease | undefined;
    try {
      lease = await sessions.checkout({ ...this.options.checkout, abort, signal: this.#stop.signal });
      stale = yield* this.#serve(lease, generationOptions);
    } finally {
      signal?.removeEventListener("abort", abort);
    }
    // After the checkin, so that the client's next turn finds the session idle.
    yield {
      type: "answer-finished",
      reason: this.#finish,
      promptTokens: this.#promptTokens,
      completionTokens: this.#completionTokens,
      cacheUsage: cacheUsageOf(lease, stale),
      draftTokens: { accepted: this.#accepted, rejected: this.#rejected },
      ...this.#clock.read(),
    };
  }

  /** Returns the stale tokens of the prompt after the answer has ended and the session is checked in. */
  async *#serve(lease: Lease, options: GenerationOptions): AsyncGenerator<ChatEvent, number, undefined> {
    const { sessions, output, answerTokens, checkout } = this.options;
    const generation = new Generation(sessions, lease, options, this.#stop);
    const tokens = generation.tokens();
    try {
      await this.#reserve(lease);
      yield* this.#stream(tokens, lease);
      await tokens.return();
      return staleTokens(lease.plan.reused, lease.session.sequence.exactLength);
    } finally {
      this.#stop.abort();
      // If the reader has left, an error of the answer has no recipient.
      await tokens.return().catch(() => undefined);
      output.recordTokens(answerTokens, checkout.tenant);
      sessions.checkin(lease, generation.end);
    }
  }

  async *#stream(
    tokens: AsyncGenerator<Generated, void, undefined>,
    lease: Lease,
  ): AsyncGenerator<ChatEvent, void, undefined> {
    const { output, generation } = this.options;
    let next = tokens.next();
    await settledWithin(next, refusalMs);
    yield {
      type: "prompt-planned",
      promptTokens: this.#promptTokens,
      cacheUsage: cacheUsageOf(lease, lease.plan.stale),
    };
    for (;;) {
      const { done, value } = await next;
      this.#clock.mark();
      if (done) break;
      this.#completionTokens++;
      this.#accepted += value.drafted ? 1 : 0;
      this.#rejected += value.rejected ?? 0;
      const ended = generation.stopTokens.has(value.token);
      if (!ended) yield* output.push(value);
      if (ended || output.stopped) {
        this.#finish = "stop";
        break;
      }
      next = tokens.next();
    }
    yield* output.flush();
    // Only the finish reason tells a client that the last call is incomplete.
    if (output.calls === "broken") this.#finish = "length";
    else if (output.calls === "complete" && this.#finish === "stop") this.#finish = "tool_calls";
  }

  /** Frees pages before the engine has to refuse. Cut cells count as free unless the previous version keeps them. */
  async #reserve({ plan, session }: Lease): Promise<void> {
    const { engine, generation, sessions } = this.options;
    const pageEdges = engine.pageSize * plan.splices.length;
    const answer = Math.min(generation.maxTokens, answerReserve);
    await sessions.reserve(plan.computed + answer + pageEdges - (session.previous ? 0 : plan.cut));
  }

  get #promptTokens(): number {
    return lengthOf(this.options.checkout.wanted);
  }
}

function cacheUsageOf({ session, plan }: Lease, stale: number): CacheUsage {
  const { kept, relocated, computed, reason } = plan;
  return { session: session.id, kept, relocated, computed, stale, reason };
}

/** Milliseconds to the first token, and from there to the end. */
class Clock {
  readonly #start = performance.now();
  #first: number | undefined;

  mark(): void {
    this.#first ??= performance.now();
  }

  read(): { readonly promptMs: number; readonly generateMs: number } {
    const now = performance.now();
    const first = this.#first ?? now;
    return { promptMs: first - this.#start, generateMs: now - first };
  }
}
