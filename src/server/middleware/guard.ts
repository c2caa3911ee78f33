// Who may speak to the server: a Host and Origin check, because a web page that rebinds its domain to
// 127.0.0.1 would otherwise drive a server that believes only in loopback, and API keys where there are any. An
// IP address as Host is always allowed: rebinding needs a name. Each key is a tenant, whose sessions are its own.
import { createHash, timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { pocketError } from "../../errors.ts";
import type { ServerOptions } from "../backend.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Whose request it is; undefined where no key is asked for. Says nothing about the key itself. */
    tenant: string | undefined;
  }
}

export function installGuard(app: FastifyInstance, options: ServerOptions): void {
  const tenantOf = options.apiKeys.length === 0 ? null : keyRing(options.apiKeys);
  app.decorateRequest("tenant", undefined);
  app.addHook("onRequest", async (request) => {
    checkHost(request, options.allowedHosts);
    // A preflight carries no key, and a health check must work without one.
    if (tenantOf === null || request.method === "OPTIONS" || /^\/health(\?|$)/.test(request.url)) return;
    request.tenant = tenantOf(presentedKey(request));
    if (request.tenant === undefined) throw pocketError("UNAUTHORIZED");
  });
}

/** `origin` is a header such as `http://localhost:3000`; `null` (a sandboxed page) is refused. */
export function isAllowedOrigin(origin: string, allowedHosts: readonly string[]): boolean {
  const url = URL.canParse(origin) ? new URL(origin) : null;
  if (url === null) return allowedHosts.includes("*");
  return isLoopback(url.hostname) || isListed(url.hostname, url.host, allowedHosts);
}

function checkHost(request: FastifyRequest, allowedHosts: readonly string[]): void {
  const host = request.headers.host ?? "";
  const url = URL.canParse(`http://${host}`) ? new URL(`http://${host}`) : null;
  const name = url?.hostname ?? "";
  if (!isLoopback(name) && !isAddress(name) && !isListed(name, host, allowedHosts)) {
    throw pocketError("FORBIDDEN", `The host '${host}' is not one this server answers to.`);
  }
  const origin = request.headers.origin;
  if (origin !== undefined && !isAllowedOrigin(origin, allowedHosts)) {
    throw pocketError("FORBIDDEN", `Pages of the origin '${origin}' may not use this server.`);
  }
}

function isLoopback(hostname: string): boolean {
  return (
    hostname === "localhost" ||
    hostname.endsWith(".localhost") ||
    hostname === "[::1]" ||
    (isIP(hostname) === 4 && hostname.startsWith("127."))
  );
}

function isAddress(hostname: string): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, "")) !== 0;
}

function isListed(hostname: string, host: string, allowedHosts: readonly string[]): boolean {
  return allowedHosts.some((allowed) => allowed === "*" || allowed === hostname || allowed === host);
}

function presentedKey(request: FastifyRequest): string {
  const bearer = /^Bearer\s+(.+)$/i.exec(request.headers.authorization ?? "")?.[1];
  const header = request.headers["x-api-key"];
  return bearer ?? (typeof header === "string" ? header : "");
}

/** The tenant of a presented key, if it is one of the ring. Every key is compared, whichever fits. */
function keyRing(apiKeys: readonly string[]): (presented: string) => string | undefined {
  // Digests have one length, which timingSafeEqual needs and which hides the key's own.
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const ring = apiKeys.map((key) => ({ wanted: digest(key), tenant: tenantName(key) }));
  return (presented) => {
    const given = digest(presented);
    return ring.filter(({ wanted }) => timingSafeEqual(given, wanted)).map(({ tenant }) => tenant)[0];
  };
}

/** The same after a restart, so that what is on disk for a key stays that key's; another digest than the check's. */
function tenantName(apiKey: string): string {
  return createHash("sha256").update(`pocket tenant\0${apiKey}`).digest("base64url").slice(0, 22);
}
