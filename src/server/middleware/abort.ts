// One abort signal per request. It aborts when the client closes its socket or the server shuts down; its reason is
// the PocketError that ends the answer.
import type { FastifyInstance, FastifyReply } from "fastify";
import { PocketError, pocketError } from "../../errors.ts";

export class RequestAborts {
  private readonly live = new Set<{ controller: AbortController; ended: Promise<void> }>();
  private closing = false;

  constructor(app: FastifyInstance) {
    // preClose runs before the listener waits for its connections, so streams can still write their error.
    app.addHook("preClose", () => this.cutAll());
  }

  /** Runs `serve` with the request's signal. Rejects with the reason of the abort, else as `serve` does. */
  async run<Result>(reply: FastifyReply, serve: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    if (this.closing) throw pocketError("ENGINE_CLOSED");
    const controller = new AbortController();
    const onClose = () => controller.abort(pocketError("CANCELLED"));
    reply.raw.once("close", onClose);
    const work = serve(controller.signal);
    const entry = {
      controller,
      ended: work.then(
        () => {},
        () => {},
      ),
    };
    this.live.add(entry);
    try {
      return await work;
    } catch (cause) {
      throw abortReason(controller.signal) ?? cause;
    } finally {
      reply.raw.off("close", onClose);
      this.live.delete(entry);
    }
  }

  private async cutAll(): Promise<void> {
    this.closing = true;
    const entries = [...this.live];
    for (const entry of entries) entry.controller.abort(pocketError("ENGINE_CLOSED"));
    await Promise.all(entries.map(({ ended }) => ended));
  }
}

/** The reason of an aborted signal; null if it has not aborted. */
export function abortReason(signal: AbortSignal): PocketError | null {
  if (!signal.aborted) return null;
  return signal.reason instanceof PocketError ? signal.reason : pocketError("CANCELLED");
}
