// Turns a thrown value into the OpenAI error form {error: {message, type, code, param}} with its status. Known are
// PocketError, zod issues and fastify's codes; anything else is a 500 with its details in the log only.
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { hasZodFastifySchemaValidationErrors } from "fastify-type-provider-zod";
import { PocketError, pocketError } from "../../errors.ts";

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly code: string;
    readonly param: string | null;
  };
}

export function errorBody(error: PocketError): ErrorBody {
  return {
    error: {
      message: error.message,
      type: errorType(error.status),
      code: error.code.toLowerCase(),
      param: error.param ?? null,
    },
  };
}

/** A 400 that names the field. */
export function badField(param: string, detail: string): PocketError {
  return new PocketError("BAD_REQUEST", `${param}: ${detail}.`, param);
}

/** The failure as a PocketError; null for an unexpected one. */
export function asPocketError(cause: unknown, bodyBytes = 0): PocketError | null {
  if (cause instanceof PocketError) return cause;
  if (hasZodFastifySchemaValidationErrors(cause)) {
    const issue = cause.validation[0]!;
    const param = issue.instancePath.split("/").filter(Boolean).join(".");
    if (param === "") return new PocketError("BAD_REQUEST", `The body: ${issue.message ?? "invalid"}.`);
    return badField(param, (issue.message ?? "invalid").replace(/\.$/, ""));
  }
  const { code, statusCode, message } = cause as Partial<FastifyError> & Error;
  switch (code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return pocketError("PAYLOAD_TOO_LARGE", bodyBytes);
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
      return new PocketError("BAD_REQUEST", "The content-type is not application/json.");
    case "FST_ERR_CTP_EMPTY_JSON_BODY":
      return pocketError("MALFORMED_JSON", "it is empty");
    case "FST_ERR_CTP_INVALID_JSON_BODY":
      return pocketError("MALFORMED_JSON", message);
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new PocketError("BAD_REQUEST", "The body is not as long as its content-length says.");
    default:
      return statusCode !== undefined && statusCode >= 400 && statusCode < 500
        ? new PocketError("BAD_REQUEST", message)
        : null;
  }
}

/** Sent for unexpected failures: their details may quote the request, so they stay in the log. */
export function internalError(): PocketError {
  return new PocketError("INTERNAL", "The server failed unexpectedly.");
}

export interface ErrorOptions {
  readonly bodyBytes: number;
  /** Seconds for Retry-After; undefined: the header is left out. */
  readonly retryAfter: (error: PocketError) => number | undefined;
}

export function installErrors(app: FastifyInstance, { bodyBytes, retryAfter }: ErrorOptions): void {
  app.setErrorHandler((cause, request, reply) => {
    const planned = asPocketError(cause, bodyBytes);
    if (planned === null) request.log.error({ err: cause }, "request failed with an unexpected error");
    const error = planned ?? internalError();
    const seconds = retryAfter(error);
    if (seconds !== undefined) reply.header("retry-after", String(seconds));
    // OpenAI clients would retry at once, which cannot help here.
    if (error.code === "CACHE_TOO_SMALL") reply.header("x-should-retry", "false");
    return sendError(reply, error);
  });
  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split("?", 1)[0]!;
    const allowed = methodsOf(app, path).join(", ");
    if (allowed === "") return sendError(reply, pocketError("NOT_FOUND", `There is no route ${path}.`));
    reply.header("allow", allowed);
    return sendError(
      reply,
      pocketError("METHOD_NOT_ALLOWED", `${path} takes ${allowed}, not ${request.method}.`),
    );
  });
}

function sendError(reply: FastifyReply, error: PocketError): FastifyReply {
  logError(reply.request, error);
  return reply.code(error.status).send(errorBody(error));
}

/** Logs codes and numbers only, never the content of requests. */
export function logError(request: FastifyRequest, error: PocketError): void {
  const fields = { code: error.code, status: error.status, param: error.param };
  if (error.status >= 500) request.log.error(fields, error.detail);
  else request.log.info(fields, "request refused");
}

function errorType(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

function methodsOf(app: FastifyInstance, path: string): string[] {
  return (["GET", "POST", "DELETE"] as const).filter((method) => {
    const found = app.findRoute({ method, url: path });
    return found !== null;
  });
}
