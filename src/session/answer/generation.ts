// One answer's tokens, from the engine to one reader. It sees to room: when the pool is full it lets idle
// sessions go, waits for working ones, at last gives up the session's own cells, and goes on where it was. It
// also knows every token that was sampled, read or not, so that the session can be put in step. Tokens only.
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

  /** What the session needs to know once `tokens` has ended. */
  get end(): JobEnd {
    return { generated: this.#generated, edited: this.#edited };
  }

  /**
   * To be iterated once. Its end, however it comes, means that the engine has let go of the sequence. Throws
   * CANCELLED, CACHE_FULL when no room could be made, ENGINE_BROKEN and its like.
   */
  async *tokens(): AsyncGenerator<Generated, void, undefined> {
    for (;;) {
      try {
        yield* this.#run();
        return;
      } catch (cause) {
        if (!isCacheFull(cause)) throw cause;
        if (await this.sessions.makeRoom(this.lease, this.stop.signal)) continue;
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
      // A refused edit has changed nothing; a refusal later on leaves the edit in place.
      if (this.#edited !== "yes") this.#edited = isCacheFull(cause) ? "no" : "unknown";
      throw cause;
    } finally {
      if (open) await this.#drain(answer);
    }
  }

  #applied(): void {
    this.#edited = "yes";
    this.lease.session.applied();
  }

  /** The whole job, or what is left of it after a stop in the middle. */
  #job(): Job {
    const said = this.#generated;
    const last = said.at(-1);
    const end = this.lease.session.sequence.length;
    const generatedFrom = lengthOf(this.lease.request.wanted);
    return {
      ...this.options,
      splices:
        last === undefined ? this.lease.plan.splices : [{ start: end, end, tokens: Int32Array.of(last) }],
      maxTokens: this.options.maxTokens - said.length,
      // An edit that is cut short leaves what it had not reached: what was relocated is not computed again.
      keepsSurvivors: true,
      ...(said.length > 0 && { draw: said.length, generatedFrom }),
      signal: this.stop.signal,
      evictIdle: () => this.sessions.evictIdle(),
    };
  }

  /** The engine may be ahead of the reader: what it sampled since may have become cells. */
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
