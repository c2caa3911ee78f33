// Checks Host, Origin and API key of every request. The Host check stops DNS rebinding, by which a web page reaches a
// server on loopback; rebinding needs a name, so an IP address as Host is always allowed. Each API key is a tenant
// with its own sessions.
import { createHash, timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { pocketError } from "../../errors.ts";
import type { ServerOptions } from "../backend.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Digest of the API key; undefined if the server has no keys. */
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
    throw pocketError("FORBIDDEN", `The host '${host}' is not allowed on this server.`);
  }
  const origin = request.headers.origin;
  if (origin !== undefined && !isAllowedOrigin(origin, allowedHosts)) {
    throw pocketError("FORBIDDEN", `The origin '${origin}' is not allowed on this server.`);
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

/** Maps a presented key to its tenant. Compares all keys, so that the time does not depend on which one matches. */
function keyRing(apiKeys: readonly string[]): (presented: string) => string | undefined {
  // Digests have one length, as timingSafeEqual requires; the length of the key stays hidden.
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const ring = apiKeys.map((key) => ({ wanted: digest(key), tenant: tenantName(key) }));
  return (presented) => {
    const given = digest(presented);
    return ring.filter(({ wanted }) => timingSafeEqual(given, wanted)).map(({ tenant }) => tenant)[0];
  };
}

/** The same after a restart, because files on disk are kept per tenant. Not the digest that the check compares. */
function tenantName(apiKey: string): string {
  return createHash("sha256").update(`pocket tenant\0${apiKey}`).digest("base64url").slice(0, 22);
}
