// What every route gets: the fastify instance with typed schemas, and the server's shared parts.
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from "fastify";
import type { ZodTypeProvider } from "fastify-type-provider-zod";
import type { Backend, ServerOptions } from "./backend.ts";
import type { Metrics } from "./metrics.ts";
import type { RequestAborts } from "./middleware/abort.ts";
import type { Admission } from "./middleware/admission.ts";

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

export interface RouteContext {
  readonly backend: Backend;
  readonly options: ServerOptions;
  readonly admission: Admission;
  readonly aborts: RequestAborts;
  readonly metrics: Metrics;
}

/** Registers one route. routes/registry.ts lists them. */
export type Route = (app: App, context: RouteContext) => void;
