// GET /health: whether the engine can answer, for which model, and since when. It needs no key and computes
// nothing. A broken engine is 500 with the sentence that broke it.
import { errorTable } from "../../errors.ts";
import type { App, RouteContext } from "../app.ts";

export function healthRoute(app: App, { backend, admission }: RouteContext): void {
  const startedAt = Date.now();
  app.get("/health", (_request, reply) => {
    const { broken, engine } = backend.health();
    const { active, queued } = admission.counts;
    if (broken !== undefined) reply.code(errorTable.ENGINE_BROKEN.status);
    return reply.send({
      status: broken === undefined ? "ok" : "broken",
      model: backend.model.id,
      since: new Date(broken?.since ?? startedAt).toISOString(),
      ...(broken !== undefined && { message: broken.message }),
      requests: { active, queued },
      engine,
    });
  });
}
