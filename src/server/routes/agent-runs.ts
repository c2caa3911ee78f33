// POST /v1/agent/runs with server-sent events, GET, GET one, DELETE to cancel. A run continues when its client leaves and
// can be watched again. Off unless enabled, and with an API key unless agent.without_key is set, because an agent has a
// shell. Events are in the JSON of harness/event-json.ts.
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ZodTypeProvider } from "fastify-type-provider-zod";
import { z } from "zod";
import type { Chat } from "../../chat/chat.ts";
import type { RunInfo } from "../../context/store.ts";
import { pocketError } from "../../errors.ts";
import { eventToJson } from "../../harness/event-json.ts";
import type { AgentEvent } from "../../harness/events.ts";
import type { LiveRun, LiveRuns } from "../../harness/live-runs.ts";
import { harnessNames } from "../../harness/policies/registry.ts";
import type { RunReport } from "../../harness/report.ts";
import { runOptionsOf } from "../../harness/run-options.ts";
import type { App, RouteContext } from "../context.ts";
import { badField } from "../openai/error-response.ts";
import { admitted } from "../openai/respond.ts";
import { EventStream } from "../sse.ts";

/** Strict: only Pocket defines these keys, so an unknown one is a spelling error. */
const runSchema = z.strictObject({
  task: z.string().min(1).nullish(),
  /** Id of a run to go on with; `task` is then one more request, if there is one. */
  resume: z.string().min(1).nullish(),
  harness: z.enum(harnessNames).nullish(),
  /** Tokens. */
  window: z.number().int().min(512).nullish(),
  max_turns: z.number().int().min(1).max(10_000).nullish(),
  /** A name, not a path: the server has a folder for it. */
  workspace: z
    .string()
    .regex(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$/, "must be a name of letters, digits, '.', '_' and '-'")
    .nullish(),
  /** Part of the window from which the agent is asked to compact. */
  nudge: z.number().gt(0).lt(1).nullish(),
  /** With nudge: demands it. */
  force: z.boolean().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  /** False: the answer is the run's id, at once. */
  stream: z.boolean().nullish(),
});

type RunBody = z.infer<typeof runSchema>;
const path = "/v1/agent/runs";
/** Events that wait for a slow reader; beyond it, text deltas are dropped. */
const eventsBehind = 1000;

export function agentRunRoutes(app: App, context: RouteContext): void {
  const { agent, apiKeys } = context.options;
  if (!agent) {
    const refuse = () => {
      throw pocketError("AGENT_OFF");
    };
    for (const url of [path, `${path}/:id`])
      app.route({ method: ["GET", "POST", "DELETE"], url, handler: refuse });
    return;
  }
  const { runs } = agent;
  app.addHook("preClose", () => runs.close());
  const allowed = apiKeys.length > 0 || agent.withoutKey;
  // A plugin scope of its own: a hook of `app` would run for every route.
  app.register(async (guarded) => {
    guarded.addHook("onRequest", async () => {
      if (!allowed) throw pocketError("AGENT_NEEDS_KEY");
    });
    routes(guarded.withTypeProvider<ZodTypeProvider>(), context, runs);
  });
}

function routes(app: App, context: RouteContext, runs: LiveRuns): void {
  app.post(path, { schema: { body: runSchema } }, async (request, reply) => {
    const { body } = request;
    const live = start(body, request, context, runs);
    if (body.stream === false)
      return reply.code(202).send({ id: live.id, object: "agent.run", status: "open" });
    return watch(live, reply, context);
  });
  app.get(path, ({ tenant }) => ({ object: "list", data: runs.list(tenant).map(wireInfo) }));
  app.get<{ Params: { id: string }; Querystring: { stream?: string } }>(
    `${path}/:id`,
    async ({ params, query, tenant }, reply) => {
      const { info, report, live } = runs.get(params.id, tenant);
      if (query.stream === "true" && live) return watch(live, reply, context);
      return { ...wireInfo(info), ...wireReport(report, live !== undefined) };
    },
  );
  app.delete<{ Params: { id: string } }>(`${path}/:id`, async ({ params, tenant }) => {
    const cancelled = await runs.cancel(params.id, tenant);
    return { id: params.id, object: "agent.run.cancelled", cancelled };
  });
}

function start(body: RunBody, request: FastifyRequest, context: RouteContext, runs: LiveRuns): LiveRun {
  const { backend } = context;
  if (!backend.model.takesTools)
    throw pocketError(
      "UNSUPPORTED_MODEL",
      `The chat template of ${backend.model.id} has no place for tools, which an agent needs.`,
    );
  // Each turn is admitted like any other request.
  const chat: Chat = {
    chat: (asked) =>
      admitted(context, asked.signal ?? new AbortController().signal, () => backend.chat(asked)),
  };
  const { tenant } = request;
  if (body.resume) return runs.resume(body.resume, tenant, body.task ?? undefined, chat);
  if (!body.task) throw badField("task", "is missing: say what the agent is to do, or resume a run");
  if (body.force && !body.nudge) throw badField("force", "needs nudge: it makes a demand of it");
  if (body.window && body.window > runs.options.context)
    throw badField(
      "window",
      `is ${body.window}; model and cache have ${runs.options.context} tokens for a run`,
    );
  if (body.workspace && runs.options.workspaces === undefined)
    throw badField("workspace", "is not served here: agent.workspaces is not set");
  return runs.begin(
    {
      task: body.task,
      harness: body.harness ?? "pca",
      maxTurns: body.max_turns ?? 100,
      ...(body.window && { window: body.window }),
      ...(body.workspace && { workspace: body.workspace }),
      ...(body.nudge && { nudge: body.nudge }),
      ...(body.nudge && body.force && { force: true }),
      ...(tenant !== undefined && { tenant }),
      ...(typeof body.temperature === "number" && { answer: { temperature: body.temperature } }),
    },
    chat,
  );
}

/** Streams the run's events until it ends, the reader leaves or the server closes. The run outlives its reader. */
async function watch(
  live: LiveRun,
  reply: FastifyReply,
  { aborts, options }: RouteContext,
): Promise<FastifyReply> {
  const waiting: AgentEvent[] = [];
  let wake = () => {};
  const unwatch = live.watch((event) => {
    if (event.type === "text-delta" && waiting.length > eventsBehind) return;
    waiting.push(event);
    wake();
  });
  let isOver = false;
  const over = () => {
    isOver = true;
    wake();
  };
  void live.ended.then(over);
  await aborts
    .run(reply, async (signal) => {
      signal.addEventListener("abort", over, { once: true });
      const stream = new EventStream(reply, options.keepAliveMs);
      try {
        await stream.send({ type: "run-started", id: live.id });
        while (waiting.length > 0 || !isOver) {
          const event = waiting.shift();
          if (event) await stream.send(eventToJson(event));
          else
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
        }
        await stream.send("[DONE]");
      } finally {
        stream.end();
      }
    })
    .finally(unwatch);
  return reply;
}

function wireInfo(info: RunInfo): object {
  const { harness, window, maxTurns } = runOptionsOf(info);
  const created = Math.floor(info.createdMs / 1000);
  return {
    id: info.id,
    object: "agent.run",
    created,
    title: info.title,
    harness,
    window,
    max_turns: maxTurns,
  };
}

function wireReport(report: RunReport, isLive: boolean): object {
  const { outcome, answer, why, turns, compactions, expands, usage, computed, prefixOnly } = report;
  return {
    // A run whose process died looks open in the store.
    status: isLive ? "open" : outcome === "open" ? "stopped" : outcome,
    ...(answer !== undefined && { answer }),
    ...(why !== undefined && { why }),
    turns: turns.length,
    compactions,
    expands,
    peak_input: usage.peakInput,
    computed,
    prefix_only: prefixOnly,
  };
}
