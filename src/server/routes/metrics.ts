// GET /metrics: the metrics of metrics.ts in the Prometheus text format, summed over all API keys.
import type { App, RouteContext } from "../context.ts";

export function metricsRoute(app: App, { metrics: { registry } }: RouteContext): void {
  app.get("/metrics", async (_request, reply) => {
    reply.type(registry.contentType);
    return registry.metrics();
  });
}
