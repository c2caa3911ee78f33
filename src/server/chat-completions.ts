// POST /v1/chat/completions, whole or streamed, in the OpenAI shapes. The model's text comes back as content,
// tool calls included; what is known and not served is refused by its field before anything is computed.
import { randomUUID } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ChatRequest, TokenLogprob } from "../context/chat.ts";
import { account, admitted, type ChunkWriter, gather, type Logprobs, streamAnswer, usage } from "./answer.ts";
import type { App, Door } from "./app.ts";
import { badField } from "./errors.ts";
import { houseMessages, houseTools } from "./messages.ts";
import { answerOptions, checkModel } from "./options.ts";
import { type ChatBody, chatSchema } from "./schemas.ts";

export function chatCompletions(app: App, door: Door): void {
  app.post("/v1/chat/completions", { schema: { body: chatSchema } }, (request, reply) =>
    serve(request.body, request, reply, door),
  );
}

function serve(body: ChatBody, request: FastifyRequest, reply: FastifyReply, door: Door) {
  const { backend, options, lifelines } = door;
  const asked = houseRequest(body, request, reply, door);
  const head = {
    id: `chatcmpl-${randomUUID()}`,
    created: Math.floor(Date.now() / 1000),
    model: backend.model.id,
  };
  return lifelines.hold(reply, async (signal) => {
    const events = admitted(door, signal, () => backend.chat({ ...asked, signal }));
    if (body.stream === true) {
      const writer = chunkWriter(head, body.stream_options?.include_usage === true);
      await streamAnswer(events, reply, writer, { keepAliveMs: options.keepAliveMs, signal });
      return reply;
    }
    const { text, logprobs, finish } = await gather(events, signal, request.log);
    return {
      ...head,
      object: "chat.completion",
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: text, refusal: null },
          logprobs: asked.topLogprobs === undefined ? null : wireLogprobs(logprobs),
          finish_reason: finish.reason,
        },
      ],
      usage: usage(finish),
      ...account(finish),
    };
  });
}

function houseRequest(body: ChatBody, request: FastifyRequest, reply: FastifyReply, door: Door): ChatRequest {
  checkModel(body.model, door.backend.model);
  refuseUnserved(body);
  const { tools, skipped } = houseTools(body.tools);
  if (skipped.length > 0) reply.header("x-pocket-tools-skipped", [...new Set(skipped)].join(", "));
  const offered = body.tool_choice === "none" ? [] : tools;
  const { model } = door.backend;
  if (offered.length > 0 && !model.takesTools) {
    throw badField("tools", `the chat template of ${model.id} has no place for them; leave them out`);
  }
  return {
    ...answerOptions(body, request),
    messages: houseMessages(body.messages),
    ...(offered.length > 0 && { tools: offered }),
    ...(body.logprobs === true && { topLogprobs: body.top_logprobs ?? 0 }),
  };
}

function refuseUnserved(body: ChatBody): void {
  const format = body.response_format?.type ?? "text";
  if (format !== "text") {
    throw badField(
      "response_format.type",
      `'${format}' is not served: answers are not constrained to a schema`,
    );
  }
  const choice = body.tool_choice ?? "auto";
  if (choice !== "auto" && choice !== "none") {
    throw badField("tool_choice", "only auto and none are served: a call cannot be forced");
  }
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
    closing(finish) {
      const last = { ...chunk({}, finish.reason), ...account(finish) };
      if (!includeUsage) return [last];
      return [last, { ...base, choices: [], usage: usage(finish), ...account(finish) }];
    },
  };
}

function wireLogprobs(logprobs: Logprobs): object {
  const entry = ({ token, logprob, bytes }: TokenLogprob) => ({ token, logprob, bytes });
  return {
    content: logprobs.map((chosen) => ({ ...entry(chosen), top_logprobs: chosen.top.map(entry) })),
    refusal: null,
  };
}
