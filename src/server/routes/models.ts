// GET /v1/models and GET /v1/models/:id: the served model.
import { pocketError } from "../../errors.ts";
import type { ModelInfo } from "../backend.ts";
import type { App, RouteContext } from "../context.ts";

export function modelsRoutes(app: App, { backend }: RouteContext): void {
  app.get("/v1/models", () => ({ object: "list", data: [wireModel(backend.model)] }));
  app.get<{ Params: { "*": string } }>("/v1/models/*", ({ params }) => {
    const id = params["*"];
    if (id !== backend.model.id) throw pocketError("MODEL_NOT_FOUND", id, backend.model.id);
    return wireModel(backend.model);
  });
}

function wireModel(model: ModelInfo): object {
  return {
    id: model.id,
    object: "model",
    created: model.created,
    owned_by: "pocket",
    max_model_len: model.context,
    meta: { family: model.family, n_vocab: model.vocab, n_ctx: model.context },
  };
}
