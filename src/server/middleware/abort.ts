// One abort signal per request, cut by whichever comes first: the client closes its socket, or the server
// shuts down. The signal's reason is the PocketError that the answer then ends with.
import type { FastifyInstance, FastifyReply } from "fastify";
import { PocketError, pocketError } from "../../errors.ts";

export class RequestAborts {
  private readonly live = new Set<{ controller: AbortController; ended: Promise<void> }>();
  private closing = false;

  constructor(app: FastifyInstance) {
    // preClose runs before the listener waits for its connections, so streams can still write their error.
    app.addHook("preClose", () => this.cutAll());
  }

  /** Runs `serve` with the request's signal. Rejects as `serve` does, or with the reason of the cut. */
  async hold<Result>(reply: FastifyReply, serve: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
    if (this.closing) throw pocketError("ENGINE_CLOSED");
    const controller = new AbortController();
    const onClose = () => controller.abort(pocketError("CANCELLED"));
    reply.raw.once("close", onClose);
    const work = serve(controller.signal);
    const line = {
      controller,
      ended: work.then(
        () => {},
        () => {},
      ),
    };
    this.live.add(line);
    try {
      return await work;
    } catch (cause) {
      throw abortReason(controller.signal) ?? cause;
    } finally {
      reply.raw.off("close", onClose);
      this.live.delete(line);
    }
  }

  private async cutAll(): Promise<void> {
    this.closing = true;
    const lines = [...this.live];
    for (const line of lines) line.controller.abort(pocketError("ENGINE_CLOSED"));
    await Promise.all(lines.map((line) => line.ended));
  }
}

/** Why the signal was cut, if it was. */
export function abortReason(signal: AbortSignal): PocketError | null {
  if (!signal.aborted) return null;
  return signal.reason instanceof PocketError ? signal.reason : pocketError("CANCELLED");
}
