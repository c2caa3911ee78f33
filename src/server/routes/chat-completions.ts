// POST /v1/chat/completions, whole or streamed, in the OpenAI shapes. Calls stream as they are written; what is
// known and not served is refused by its field before anything is computed.
import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ChatRequest, TokenLogprob, ToolCall } from "../../chat/chat.ts";
import type { App, RouteContext } from "../app.ts";
import { answerOptions, checkModel } from "../openai/answer-options.ts";
import { constraintsOf } from "../openai/constraints.ts";
import { badField } from "../openai/error-response.ts";
import { parseMessages, parseTools } from "../openai/parse-messages.ts";
import {
  admitted,
  type CallEvent,
  type ChunkWriter,
  cacheUsageAndTimings,
  collectResponse,
  type Logprobs,
  streamAnswer,
  usage,
} from "../openai/respond.ts";
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
  return aborts.hold(reply, async (signal) => {
    const events = admitted(context, signal, () => backend.chat({ ...asked, signal }));
    if (body.stream === true) {
      const writer = chunkWriter(head, body.stream_options?.include_usage === true);
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
          logprobs: asked.topLogprobs === undefined ? null : wireLogprobs(logprobs),
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

function chunkWriter(head: object, includeUsage: boolean): ChunkWriter {
  const base = { ...head, object: "chat.completion.chunk" };
  const chunk = (delta: object, finishReason: string | null, logprobs: object | null = null) => ({
    ...base,
    choices: [{ index: 0, delta, logprobs, finish_reason: finishReason }],
    // OpenAI's rule: with include_usage every chunk has the key, and only the last one a value.
    ...(includeUsage && { usage: null }),
  });
  return {
    opening: () => [chunk({ role: "assistant", content: "" }, null)],
    delta: ({ text, logprobs }) => chunk({ content: text }, null, logprobs ? wireLogprobs(logprobs) : null),
    call: (event) => chunk({ tool_calls: [wireCallDelta(event)] }, null),
    closing(finish) {
      const last = { ...chunk({}, finish.reason), ...cacheUsageAndTimings(finish) };
      if (!includeUsage) return [last];
      return [last, { ...base, choices: [], usage: usage(finish), ...cacheUsageAndTimings(finish) }];
    },
  };
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

/** Index, id and name once, then fragments with the index alone: clients put them together by it. */
function wireCallDelta(event: CallEvent): object {
  const { index } = event;
  if (event.type === "tool-call-delta") return { index, function: { arguments: event.arguments } };
  return { index, id: event.id, type: "function", function: { name: event.name, arguments: "" } };
}

function wireLogprobs(logprobs: Logprobs): object {
  const entry = ({ token, logprob, bytes }: TokenLogprob) => ({ token, logprob, bytes });
  return {
    content: logprobs.map((chosen) => ({ ...entry(chosen), top_logprobs: chosen.top.map(entry) })),
    refusal: null,
  };
}
