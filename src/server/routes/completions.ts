// POST /v1/completions: one prompt without a template, as text or token ids, as one body or as a stream. A batch of
// prompts, `echo` and `suffix` are refused.
import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { CompletionRequest } from "../../chat/chat.ts";
import type { App, RouteContext } from "../context.ts";
import { answerOptions, checkModel } from "../openai/answer-options.ts";
import { cacheUsageAndTimings, completionChunks, completionLogprobs, usage } from "../openai/chunks.ts";
import { badField } from "../openai/error-response.ts";
import { admitted, collectResponse, streamAnswer } from "../openai/respond.ts";
import { type CompletionBody, completionSchema, isTokenIds } from "../openai/schemas.ts";

/** OpenAI's documented default for this route; chat has none. */
const defaultMaxTokens = 16;

export function completionsRoute(app: App, context: RouteContext): void {
  app.post("/v1/completions", { schema: { body: completionSchema } }, (request, reply) =>
    serve(request.body, request, reply, context),
  );
}

function serve(body: CompletionBody, request: FastifyRequest, reply: FastifyReply, context: RouteContext) {
  const { backend, options, aborts } = context;
  const asked = toRequest(body, request, context);
  const head = {
    id: `cmpl-${randomUUID()}`,
    object: "text_completion",
    created: Math.floor(Date.now() / 1000),
    model: backend.model.id,
  };
  return aborts.run(reply, async (signal) => {
    const events = admitted(context, signal, () => backend.complete({ ...asked, signal }));
    if (body.stream === true) {
      const writer = completionChunks(head, body.stream_options?.include_usage === true);
      await streamAnswer(events, reply, writer, { keepAliveMs: options.keepAliveMs, signal });
      return reply;
    }
    const { text, logprobs, finish } = await collectResponse(events, signal, request.log);
    const shaped = asked.topLogprobs === undefined ? null : completionLogprobs(logprobs, 0);
    return {
      ...head,
      choices: [{ index: 0, text, logprobs: shaped, finish_reason: finish.reason }],
      usage: usage(finish),
      ...cacheUsageAndTimings(finish),
    };
  });
}

function toRequest(body: CompletionBody, request: FastifyRequest, context: RouteContext): CompletionRequest {
  checkModel(body.model, context.backend.model);
  return {
    maxTokens: defaultMaxTokens,
    ...answerOptions(body, request),
    prompt: onePrompt(body.prompt, context.backend.model.vocab),
    ...(typeof body.logprobs === "number" && { topLogprobs: body.logprobs }),
  };
}

/** A list of one prompt is accepted; a batch is not. */
function onePrompt(prompt: CompletionBody["prompt"], vocab: number): string | number[] {
  if (typeof prompt === "string") return prompt;
  if (prompt.length === 0) throw badField("prompt", "is an empty list");
  if (isTokenIds(prompt)) return checkIds(prompt, vocab, "prompt");
  if (prompt.length > 1) throw badField("prompt", `holds ${prompt.length} prompts; send one per request`);
  const only = prompt[0] as string | number[];
  return typeof only === "string" ? only : checkIds(only, vocab, "prompt.0");
}

function checkIds(ids: number[], vocab: number, path: string): number[] {
  if (ids.length === 0) throw badField(path, "is an empty list");
  const bad = ids.findIndex((id) => id >= vocab);
  if (bad >= 0)
    throw badField(`${path}.${bad}`, `${ids[bad]} is not a token id; the vocabulary has ${vocab}`);
  return ids;
}
