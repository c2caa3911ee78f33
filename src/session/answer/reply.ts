// One request being served: a session checked out, its job run, its events in the order of the Chat port, and
// the session given back, whether the answer ends, fails, is aborted or is no longer read. Made per request;
// the session is only taken when the events are asked for.
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
 * An engine refuses a job at once or not at all, but "at once" may be a step away: so long the first event is
 * held back, in milliseconds, so that a refusal comes before it. Much longer would keep a client in the dark
 * while a long prompt is read.
 */
const refusalMs = 250;
/** Tokens of an answer for which room is made beforehand; more is found when it is needed. */
const answerReserve = 256;

export class Reply {
  readonly #stop = new AbortController();
  readonly #clock = new Clock();
  #completionTokens = 0;
  #accepted = 0;
  #rejected = 0;
  #finish: FinishReason = "length";

  constructor(private readonly options: ReplyOptions) {}

  /** To be iterated once. Throws PocketError; before the first event where the request cannot be served. */
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
    // After the checkin, so that a client's next turn finds its session idle.
    yield {
      type: "answer-finished",
      reason: this.#finish,
      promptTokens: this.#promptTokens,
      completionTokens: this.#completionTokens,
      cacheUsage: billOf(lease, stale),
      draftTokens: { accepted: this.#accepted, rejected: this.#rejected },
      ...this.#clock.read(),
    };
  }

  /** Returns the stale tokens of the prompt, once the answer has ended and the session is back. */
  async *#serve(lease: Lease, options: GenerationOptions): AsyncGenerator<ChatEvent, number, undefined> {
    const { sessions } = this.options;
    const generation = new Generation(sessions, lease, options, this.#stop);
    const tokens = generation.tokens();
    try {
      await this.#reserve(lease);
      yield* this.#speak(tokens, lease);
      await tokens.return();
      return staleTokens(lease.plan.reused, lease.session.sequence.exactLength);
    } finally {
      this.#stop.abort();
      // An answer that nobody reads any more may still fail; there is nobody to tell.
      await tokens.return().catch(() => undefined);
      this.options.output.remember(this.options.answerTokens, this.options.checkout.tenant);
      sessions.checkin(lease, generation.end);
    }
  }

  async *#speak(
    tokens: AsyncGenerator<Generated, void, undefined>,
    lease: Lease,
  ): AsyncGenerator<ChatEvent, void, undefined> {
    const { output, generation } = this.options;
    let next = tokens.next();
    await settledWithin(next, refusalMs);
    yield {
      type: "prompt-planned",
      promptTokens: this.#promptTokens,
      cacheUsage: billOf(lease, lease.plan.stale),
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
    // Half a call is told from a whole one by nothing but the reason; where there was no end, that is "length".
    if (output.calls === "broken") this.#finish = "length";
    else if (output.calls === "complete" && this.#finish === "stop") this.#finish = "tool_calls";
  }

  /** Makes room before the engine has to refuse. Cut cells count as free, but for those that an undo keeps. */
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

function billOf({ session, plan }: Lease, stale: number): CacheUsage {
  const { kept, relocated, computed, reason } = plan;
  return { session: session.id, kept, relocated, computed, stale, reason };
}

/** Milliseconds to the first token, and from there on. */
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

/** Rejects as `result` does within the time; else resolves and leaves the result to be awaited later. */
async function settledWithin(result: Promise<unknown>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  try {
    await Promise.race([result, late]);
  } finally {
    clearTimeout(timer);
  }
}
