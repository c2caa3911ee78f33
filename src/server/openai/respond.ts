// Answers a request with the events of one answer: admission, then one body or an SSE stream. chunks.ts shapes both.
import type { FastifyBaseLogger, FastifyReply } from "fastify";
import type { ChatEvent, ToolCall } from "../../chat/chat.ts";
import { pocketError } from "../../errors.ts";
import { settledWithin } from "../../session/answer/settled-within.ts";
import type { RouteContext } from "../context.ts";
import { abortReason } from "../middleware/abort.ts";
import { EventStream } from "../sse.ts";
import { type ChunkWriter, chunkOf, type Finish, type Logprobs } from "./chunks.ts";
import { asPocketError, errorBody, internalError, logError } from "./error-response.ts";

export interface CollectedResponse {
  readonly text: string;
  /** The last one is incomplete if the finish reason is "length". */
  readonly calls: readonly ToolCall[];
  readonly logprobs: Logprobs;
  readonly finish: Finish;
}

/** Waits for admission, then passes the events on and counts them. Leaves when the events end or are dropped. */
export async function* admitted(
  { admission, metrics }: Pick<RouteContext, "admission" | "metrics">,
  signal: AbortSignal,
  start: () => AsyncIterable<ChatEvent>,
): AsyncGenerator<ChatEvent> {
  const arrivedAt = performance.now();
  let leave: () => void;
  try {
    leave = await admission.enter(signal);
  } catch (cause) {
    metrics.failed(abortReason(signal) ?? cause);
    throw cause;
  }
  metrics.entered(performance.now() - arrivedAt);
  try {
    yield* metrics.metered(arrivedAt, start());
  } finally {
    leave();
  }
}

/** The whole answer. Rejects as the events do. */
export async function collectResponse(
  events: AsyncIterable<ChatEvent>,
  signal: AbortSignal,
  log: FastifyBaseLogger,
): Promise<CollectedResponse> {
  let text = "";
  const calls: ToolCall[] = [];
  const logprobs: Logprobs[number][] = [];
  for await (const event of events) {
    signal.throwIfAborted();
    if (event.type === "text-delta") {
      text += event.text;
      logprobs.push(...(event.logprobs ?? []));
    } else if (event.type === "tool-call-start") {
      calls[event.index] = { id: event.id, name: event.name, arguments: "" };
    } else if (event.type === "tool-call-delta") {
      const call = calls[event.index]!;
      calls[event.index] = { ...call, arguments: call.arguments + event.arguments };
    } else if (event.type === "answer-finished") {
      logFinish(log, event);
      return { text, calls, logprobs, finish: event };
    }
  }
  throw pocketError("INTERNAL", "The answer ended without a finish event.");
}

/**
 * Streams the events. A failure before the first event rejects, so that it becomes an HTTP status; a later one is
 * sent as an error line, without a finish chunk or [DONE]. If the first event takes longer than the keep-alive time
 * (queue, long prefill), the stream opens before it.
 */
export async function streamAnswer(
  events: AsyncGenerator<ChatEvent>,
  reply: FastifyReply,
  writer: ChunkWriter,
  options: { readonly keepAliveMs: number; readonly signal: AbortSignal },
): Promise<void> {
  const first = events.next();
  await settledWithin(first, options.keepAliveMs);
  const stream = new EventStream(reply, options.keepAliveMs);
  try {
    for (const chunk of writer.opening()) await stream.send(chunk);
    for (let next = await first; ; next = await events.next()) {
      options.signal.throwIfAborted();
      if (next.done) throw pocketError("INTERNAL", "The answer ended without a finish event.");
      const event = next.value;
      const chunk = chunkOf(event, writer);
      if (chunk) await stream.send(chunk);
      if (event.type !== "answer-finished") continue;
      logFinish(reply.request.log, event);
      for (const chunk of writer.closing(event)) await stream.send(chunk);
      await stream.send("[DONE]");
      break;
    }
  } catch (cause) {
    const planned = abortReason(options.signal) ?? asPocketError(cause);
    if (planned === null) reply.request.log.error({ err: cause }, "stream failed with an unexpected error");
    else logError(reply.request, planned);
    await stream.send(errorBody(planned ?? internalError()));
  } finally {
    stream.end();
    await events.return(undefined).catch(() => {});
  }
}

function logFinish(log: FastifyBaseLogger, event: Finish): void {
  const { promptTokens, completionTokens, promptMs, generateMs, reason: finish, cacheUsage } = event;
  log.info(
    { ...cacheUsage, promptTokens, completionTokens, promptMs, generateMs, finish },
    "answer-finished",
  );
}
