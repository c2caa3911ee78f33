// GET /health: status, model and engine numbers; no API key needed. A broken engine is a 500 with the reason.
import { errorTable } from "../../errors.ts";
import type { App, RouteContext } from "../context.ts";

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
