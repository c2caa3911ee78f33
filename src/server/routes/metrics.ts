// GET /metrics: the numbers of metrics.ts in the Prometheus text form. It needs the key where there is one, and
// shows the same numbers to every key: they are sums over all of them.
import type { App, RouteContext } from "../app.ts";

export function metricsRoute(app: App, { metrics: { registry } }: RouteContext): void {
  app.get("/metrics", async (_request, reply) => {
    reply.type(registry.contentType);
    return registry.metrics();
  });
}
