// GET /v1/sessions and DELETE /v1/sessions/:id: the conversations whose keys and values are resident, and
// how to let one go. Deleting loses time, not data: the next request computes its prompt again.
import type { App, Door } from "./app.ts";
import type { SessionInfo } from "./backend.ts";

export function sessions(app: App, { backend }: Door): void {
  app.get("/v1/sessions", () => ({ object: "list", data: backend.sessions().map(wireSession) }));
  app.delete<{ Params: { id: string } }>("/v1/sessions/:id", ({ params }) => {
    backend.deleteSession(params.id);
    return { id: params.id, object: "session.deleted", deleted: true };
  });
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
