// The server put together: guard, error form, queue, aborts and one file per group of routes. It listens
// nowhere; cli/serve.ts does that. Logs carry codes and counts, never the content of messages.
import cors from "@fastify/cors";
import fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type RawReplyDefaultExpression,
  type RawRequestDefaultExpression,
  type RawServerDefault,
} from "fastify";
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from "fastify-type-provider-zod";
import type { Backend, ServerOptions } from "./backend.ts";
import { Metrics } from "./metrics.ts";
import { RequestAborts } from "./middleware/abort.ts";
import { Admission } from "./middleware/admission.ts";
import { installGuard, isAllowedOrigin } from "./middleware/guard.ts";
import { retryAfter } from "./middleware/retry-after.ts";
import { installErrors } from "./openai/error-response.ts";
import { agentRunRoutes } from "./routes/agent-runs.ts";
import { chatCompletionsRoute } from "./routes/chat-completions.ts";
import { completionsRoute } from "./routes/completions.ts";
import { healthRoute } from "./routes/health.ts";
import { metricsRoute } from "./routes/metrics.ts";
import { modelsRoutes } from "./routes/models.ts";
import { sessionsRoutes } from "./routes/sessions.ts";
import { tokenizeRoutes } from "./routes/tokenize.ts";

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** What every route is given. */
export interface RouteContext {
  readonly backend: Backend;
  readonly options: ServerOptions;
  readonly admission: Admission;
  readonly aborts: RequestAborts;
  readonly metrics: Metrics;
}

/** close() ends live answers with ENGINE_CLOSED before it waits for connections; it leaves the backend open. */
export function buildServer(backend: Backend, options: ServerOptions): FastifyInstance {
  const app = fastify({
    bodyLimit: options.bodyBytes,
    // A session's name may have 256 characters, each up to four bytes of %XX.
    routerOptions: { maxParamLength: 256 * 12 },
    // A key of this name inside a tool call's arguments is data, not an attack worth a 400.
    onProtoPoisoning: "remove",
    onConstructorPoisoning: "remove",
    forceCloseConnections: true,
    logger: { level: options.logLevel, redact: ["req.headers.authorization", 'req.headers["x-api-key"]'] },
  });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  const admission = new Admission(options.activeRequests, options.queuedRequests);
  installErrors(app, {
    bodyBytes: options.bodyBytes,
    retryAfter: (error) => retryAfter(error, admission.pace),
  });
  installGuard(app, options);
  app.register(cors, {
    methods: ["GET", "POST", "DELETE"],
    origin: (origin, done) =>
      done(null, origin !== undefined && isAllowedOrigin(origin, options.allowedHosts)),
  });

  const context: RouteContext = {
    backend,
    options,
    admission,
    aborts: new RequestAborts(app),
    metrics: new Metrics(backend, admission),
  };
  app.register(async (instance) => {
    const routes = instance.withTypeProvider<ZodTypeProvider>();
    for (const group of [
      chatCompletionsRoute,
      completionsRoute,
      modelsRoutes,
      healthRoute,
      metricsRoute,
      tokenizeRoutes,
      sessionsRoutes,
      agentRunRoutes,
    ])
      group(routes, context);
  });
  return app;
}
