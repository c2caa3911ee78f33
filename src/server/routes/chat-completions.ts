// POST /v1/chat/completions, as one body or as a stream. A known field that is not supported is refused with its name
// before anything is computed.
import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ChatRequest, ToolCall } from "../../chat/chat.ts";
import type { App, RouteContext } from "../context.ts";
import { answerOptions, checkModel } from "../openai/answer-options.ts";
import { cacheUsageAndTimings, chatChunks, chatLogprobs, usage } from "../openai/chunks.ts";
import { constraintsOf } from "../openai/constraints.ts";
import { badField } from "../openai/error-response.ts";
import { parseMessages, parseTools } from "../openai/parse-messages.ts";
import { admitted, collectResponse, streamAnswer } from "../openai/respond.ts";
import { type ChatBody, chatSchema } from "../openai/schemas.ts";

export function chatCompletionsRoute(app: App, context: RouteContext): void {
  app.post("/v1/chat/completions", { schema: { body: chatSchema } }, (request, reply) =>
    serve(request.body, request, reply, context),
  );
}

function serve(body: ChatBody, request: FastifyRequest, reply: FastifyReply, context: RouteContext) {
  const { backend, options, aborts } = context;
  const asked = toRequest(body, request, reply, context);
  const head = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(Date.now() / 1000),
    model: backend.model.id,
  };
  return aborts.run(reply, async (signal) => {
    const events = admitted(context, signal, () => backend.chat({ ...asked, signal }));
    if (body.stream === true) {
      const writer = chatChunks(head, body.stream_options?.include_usage === true);
      await streamAnswer(events, reply, writer, { keepAliveMs: options.keepAliveMs, signal });
      return reply;
    }
    const { text, calls, logprobs, finish } = await collectResponse(events, signal, request.log);
    return {
      ...head,
      object: "chat.completion",
      choices: [
        {
          index: 0,
          message: wireMessage(text, calls),
          logprobs: asked.topLogprobs === undefined ? null : chatLogprobs(logprobs),
          finish_reason: finish.reason,
        },
      ],
      usage: usage(finish),
      ...cacheUsageAndTimings(finish),
    };
  });
}

function toRequest(
  body: ChatBody,
  request: FastifyRequest,
  reply: FastifyReply,
  context: RouteContext,
): ChatRequest {
  checkModel(body.model, context.backend.model);
  refuseUnserved(body);
  const { tools, skipped } = parseTools(body.tools);
  if (skipped.length > 0) reply.header("x-pocket-tools-skipped", [...new Set(skipped)].join(", "));
  const constraints = constraintsOf(body, tools);
  const { model } = context.backend;
  if (constraints.tools && !model.takesTools) {
    throw badField("tools", `the chat template of ${model.id} has no place for them; leave them out`);
  }
  return {
    ...answerOptions(body, request),
    messages: parseMessages(body.messages),
    ...constraints,
    ...(body.logprobs === true && { topLogprobs: body.top_logprobs ?? 0 }),
  };
}

function refuseUnserved(body: ChatBody): void {
  if ((body.top_logprobs ?? 0) > 0 && body.logprobs !== true) {
    throw badField("top_logprobs", "needs logprobs: true");
  }
}

function wireMessage(text: string, calls: readonly ToolCall[]): object {
  if (calls.length === 0) return { role: "assistant", content: text, refusal: null };
  const tool_calls = calls.map(({ id, name, arguments: given }) => ({
    id,
    type: "function",
    function: { name, arguments: given },
  }));
  return { role: "assistant", content: text === "" ? null : text, refusal: null, tool_calls };
}
