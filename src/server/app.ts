// The server put together: guard, error form, queue, lifelines and one file per group of routes. It listens
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
import { Lifelines } from "./middleware/abort.ts";
import { Admission } from "./middleware/admission.ts";
import { installGuard, isAllowedOrigin } from "./middleware/guard.ts";
import { retryAfter } from "./middleware/retry-after.ts";
import { installErrors } from "./openai/error-response.ts";
import { agentRuns } from "./routes/agent-runs.ts";
import { chatCompletions } from "./routes/chat-completions.ts";
import { completions } from "./routes/completions.ts";
import { health } from "./routes/health.ts";
import { numbers } from "./routes/metrics.ts";
import { models } from "./routes/models.ts";
import { sessions } from "./routes/sessions.ts";
import { tokens } from "./routes/tokenize.ts";

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** What every route is given. */
export interface Door {
  readonly backend: Backend;
  readonly options: ServerOptions;
  readonly admission: Admission;
  readonly lifelines: Lifelines;
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

  const door: Door = {
    backend,
    options,
    admission,
    lifelines: new Lifelines(app),
    metrics: new Metrics(backend, admission),
  };
  app.register(async (instance) => {
    const routes = instance.withTypeProvider<ZodTypeProvider>();
    for (const group of [chatCompletions, completions, models, health, numbers, tokens, sessions, agentRuns])
      group(routes, door);
  });
  return app;
}
