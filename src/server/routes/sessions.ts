// GET /v1/sessions, GET and DELETE /v1/sessions/:id: the conversations whose keys and values are resident, what
// is in one, and how to let it go. Deleting loses time, not data: the next request computes its prompt again.
// What belongs to another API key does not exist here.
import type { App, RouteContext } from "../app.ts";
import type { SessionInfo, SessionMap } from "../backend.ts";

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

/** Ranges go out as [start, end, …] lists: a map of a long session has thousands. */
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
