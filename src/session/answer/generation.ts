// The tokens of one answer, from the engine to one reader. If the pool is full it evicts idle sessions, waits for busy
// ones, or finally restarts the session, and then continues where it stopped. It records every sampled token, read or
// not, so that the session can be reconciled.
import type { Generated, Job } from "../../engine/job.ts";
import { PocketError, pocketError } from "../../errors.ts";
import { lengthOf } from "../../text/span.ts";
import type { JobEnd } from "../residency/session.ts";
import type { Lease, Sessions } from "../residency/sessions.ts";

export type GenerationOptions = Pick<
  Job,
  "sampling" | "maxTokens" | "stopTokens" | "top" | "logprobs" | "lookup" | "constraint"
>;

export class Generation {
  readonly #generated: number[] = [];
  #edited: JobEnd["edited"] = "no";
  #restarted = false;

  constructor(
    private readonly sessions: Sessions,
    private readonly lease: Lease,
    private readonly options: GenerationOptions,
    /** Aborted by the reader, the client or a deletion; ends the answer with CANCELLED. */
    private readonly stop: AbortController,
  ) {}

  /** For `Sessions.checkin`, once `tokens` has ended. */
  get end(): JobEnd {
    return { generated: this.#generated, edited: this.#edited };
  }

  /**
   * To be iterated once. When it ends or throws, the engine no longer uses the sequence. Throws CANCELLED, CACHE_FULL
   * if no pages could be freed, and the engine's other errors.
   */
  async *tokens(): AsyncGenerator<Generated, void, undefined> {
    for (;;) {
      try {
        yield* this.#run();
        return;
      } catch (cause) {
        if (!isCacheFull(cause)) throw cause;
        if (await this.sessions.freePages(this.lease, this.stop.signal)) continue;
        if (this.#restarted || this.#generated.length > 0 || this.lease.session.sequence.length === 0)
          throw cause;
        this.#restarted = true;
        this.sessions.restart(this.lease);
      }
    }
  }

  async *#run(): AsyncGenerator<Generated, void, undefined> {
    if (this.stop.signal.aborted) throw pocketError("CANCELLED");
    const { sequence } = this.lease.session;
    const answer = sequence.run(this.#job());
    let open = true;
    try {
      for (;;) {
        const next = await answer.next();
        this.#applied();
        if (next.done) {
          open = false;
          return;
        }
        this.#generated.push(next.value.token);
        yield next.value;
      }
    } catch (cause) {
      open = false;
      // A refused edit has changed nothing; a later refusal leaves the edit applied.
      if (this.#edited !== "yes") this.#edited = isCacheFull(cause) ? "no" : "unknown";
      throw cause;
    } finally {
      if (open) await this.#drain(answer);
    }
  }

  #applied(): void {
    this.#edited = "yes";
    this.lease.session.promptComputed();
  }

  /** The whole job, or the rest of it after an interruption. */
  #job(): Job {
    const generated = this.#generated;
    const last = generated.at(-1);
    const end = this.lease.session.sequence.length;
    const generatedFrom = lengthOf(this.lease.request.wanted);
    return {
      ...this.options,
      splices:
        last === undefined ? this.lease.plan.splices : [{ start: end, end, tokens: Int32Array.of(last) }],
      maxTokens: this.options.maxTokens - generated.length,
      // Survivors stay if the job ends early, so that they are not computed again.
      keepsSurvivors: true,
      ...(generated.length > 0 && { draw: generated.length, generatedFrom }),
      signal: this.stop.signal,
      evictIdle: () => this.sessions.evictIdle(),
    };
  }

  /** Collects the tokens that the engine sampled but the reader did not read: they may have cells. */
  async #drain(answer: AsyncGenerator<Generated, void, undefined>): Promise<void> {
    this.stop.abort();
    try {
      for await (const { token } of answer) this.#generated.push(token);
    } catch (cause) {
      if (!(cause instanceof PocketError)) throw cause;
    }
  }
}

function isCacheFull(cause: unknown): boolean {
  return cause instanceof PocketError && cause.code === "CACHE_FULL";
}
