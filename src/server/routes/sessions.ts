// GET /v1/sessions, GET and DELETE /v1/sessions/:id: resident sessions of the tenant. After a deletion the next request
// computes its prompt again. Sessions of other tenants are answered like ones that do not exist.

import type { SessionInfo, SessionMap } from "../backend.ts";
import type { App, RouteContext } from "../context.ts";

export function sessionsRoutes(app: App, { backend }: RouteContext): void {
  app.get("/v1/sessions", ({ tenant }) => ({
    object: "list",
    data: backend.sessions(tenant).map(wireSession),
  }));
  app.get<{ Params: { id: string } }>("/v1/sessions/:id", ({ params, tenant }) => {
    const map = backend.session(params.id, tenant);
    const info = backend.sessions(tenant).find(({ id }) => id === params.id);
    return { ...(info && wireSession(info)), ...wireMap(map) };
  });
  app.delete<{ Params: { id: string } }>("/v1/sessions/:id", ({ params, tenant }) => {
    backend.deleteSession(params.id, tenant);
    return { id: params.id, object: "session.deleted", deleted: true };
  });
}

/** Ranges are lists [start, end, …], not objects: a long session has thousands. */
function wireMap({ tokens, stale, spans, shifts }: SessionMap): object {
  return {
    tokens,
    stale_tokens: stale.reduce((sum, { start, end }) => sum + end - start, 0),
    stale: stale.map(({ start, end }) => [start, end]),
    spans: spans.map(({ start, end, role }) => [start, end, role]),
    shifts: shifts.map(({ start, end, shift }) => [start, end, shift]),
  };
}

function wireSession(session: SessionInfo): object {
  return {
    id: session.id,
    object: "session",
    tokens: session.tokens,
    exact_tokens: session.exactTokens,
    used_at: new Date(session.usedAt).toISOString(),
    busy: session.busy,
    named: session.named,
  };
}
