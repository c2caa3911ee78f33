// POST /v1/completions: one prompt without a template, as text or as token ids, whole or streamed. A batch of
// prompts, an echo of the prompt and a suffix are refused by their field.
import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { CompletionRequest } from "../../chat/chat.ts";
import type { App, RouteContext } from "../app.ts";
import { answerOptions, checkModel } from "../openai/answer-options.ts";
import { badField } from "../openai/error-response.ts";
import {
  admitted,
  type ChunkWriter,
  cacheUsageAndTimings,
  collectResponse,
  type Logprobs,
  streamAnswer,
  usage,
} from "../openai/respond.ts";
import { type CompletionBody, completionSchema, isTokenIds } from "../openai/schemas.ts";

/** The documented default of this route; chat has none. */
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
  return aborts.hold(reply, async (signal) => {
    const events = admitted(context, signal, () => backend.complete({ ...asked, signal }));
    if (body.stream === true) {
      const writer = chunkWriter(head, body.stream_options?.include_usage === true);
      await streamAnswer(events, reply, writer, { keepAliveMs: options.keepAliveMs, signal });
      return reply;
    }
    const { text, logprobs, finish } = await collectResponse(events, signal, request.log);
    const shaped = asked.topLogprobs === undefined ? null : wireLogprobs(logprobs, 0);
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

/** A list with one prompt in it is that prompt; several are a batch. */
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
  if (bad >= 0) throw badField(`${path}.${bad}`, `${ids[bad]} is no token id; the vocabulary has ${vocab}`);
  return ids;
}

function chunkWriter(head: object, includeUsage: boolean): ChunkWriter {
  let offset = 0;
  const chunk = (text: string, finishReason: string | null, logprobs: object | null = null) => ({
    ...head,
    choices: [{ index: 0, text, logprobs, finish_reason: finishReason }],
    ...(includeUsage && { usage: null }),
  });
  return {
    opening: () => [],
    delta({ text, logprobs }) {
      const shaped = logprobs ? wireLogprobs(logprobs, offset) : null;
      offset += text.length;
      return chunk(text, null, shaped);
    },
    closing(finish) {
      const last = { ...chunk("", finish.reason), ...cacheUsageAndTimings(finish) };
      if (!includeUsage) return [last];
      return [last, { ...head, choices: [], usage: usage(finish), ...cacheUsageAndTimings(finish) }];
    },
  };
}

/** The older, column-wise shape; `text_offset` counts characters from the start of the answer. */
function wireLogprobs(logprobs: Logprobs, start: number): object {
  let offset = start;
  const offsets = logprobs.map(({ token }) => {
    const here = offset;
    offset += token.length;
    return here;
  });
  return {
    tokens: logprobs.map(({ token }) => token),
    token_logprobs: logprobs.map(({ logprob }) => logprob),
    top_logprobs: logprobs.map(({ top }) =>
      Object.fromEntries(top.map(({ token, logprob }) => [token, logprob])),
    ),
    text_offset: offsets,
  };
}
