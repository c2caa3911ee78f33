// The registry of routes. A new route is a file in this folder and a line here.
import type { Route } from "../context.ts";
import { agentRunRoutes } from "./agent-runs.ts";
import { chatCompletionsRoute } from "./chat-completions.ts";
import { completionsRoute } from "./completions.ts";
import { healthRoute } from "./health.ts";
import { metricsRoute } from "./metrics.ts";
import { modelsRoutes } from "./models.ts";
import { sessionsRoutes } from "./sessions.ts";
import { tokenizeRoutes } from "./tokenize.ts";

export const routes: readonly Route[] = [
  chatCompletionsRoute,
  completionsRoute,
  modelsRoutes,
  healthRoute,
  metricsRoute,
  tokenizeRoutes,
  sessionsRoutes,
  agentRunRoutes,
];
