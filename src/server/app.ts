// Builds the server: guard, error responses, admission, request aborts, routes. cli/serve.ts makes it listen. Logs have
// codes and counts, never the content of messages.
import cors from "@fastify/cors";
import fastify, { type FastifyInstance } from "fastify";
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from "fastify-type-provider-zod";
import type { Backend, ServerOptions } from "./backend.ts";
import type { RouteContext } from "./context.ts";
import { Metrics } from "./metrics.ts";
import { RequestAborts } from "./middleware/abort.ts";
import { Admission } from "./middleware/admission.ts";
import { installGuard, isAllowedOrigin } from "./middleware/guard.ts";
import { retryAfter } from "./middleware/retry-after.ts";
import { installErrors } from "./openai/error-response.ts";
import { routes } from "./routes/registry.ts";

/** close() ends running answers with ENGINE_CLOSED before it waits for connections; it leaves the backend open. */
export function buildServer(backend: Backend, options: ServerOptions): FastifyInstance {
  const app = fastify({
    bodyLimit: options.bodyBytes,
    // A session id has up to 256 characters, each up to four bytes of %XX.
    routerOptions: { maxParamLength: 256 * 12 },
    // The arguments of a tool call may have such a key; drop it instead of answering 400.
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
    retryAfter: (error) => retryAfter(error, admission.load),
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
    const typed = instance.withTypeProvider<ZodTypeProvider>();
    for (const route of routes) route(typed, context);
  });
  return app;
}
