// The parts that chat and text answers have in common: usage, the bill, timings, and the two ways of
// consuming the events of one answer, at once or as they come.
import type { FastifyBaseLogger, FastifyReply } from "fastify";
import type { CacheUsage, ChatEvent, ToolCall } from "../../chat/chat.ts";
import { pocketError } from "../../errors.ts";
import { settledWithin } from "../../session/answer/settled-within.ts";
import type { RouteContext } from "../app.ts";
import { abortReason } from "../middleware/abort.ts";
import { EventStream } from "../sse.ts";
import { asPocketError, errorBody, internalError, logError } from "./error-response.ts";

export type TextDelta = Extract<ChatEvent, { type: "text-delta" }>;
/** What streams of a call; that it is complete shows on the wire in the reason only. */
export type CallEvent = Extract<ChatEvent, { type: "tool-call-start" | "tool-call-delta" }>;
export type Finish = Extract<ChatEvent, { type: "answer-finished" }>;
export type Logprobs = NonNullable<TextDelta["logprobs"]>;

export interface CollectedResponse {
  readonly text: string;
  /** The last one may be cut; the reason is "length" then. */
  readonly calls: readonly ToolCall[];
  readonly logprobs: Logprobs;
  readonly finish: Finish;
}

/**
 * The events once there is a place for them, counted; the place is given back when they end, however they end.
 */
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

/** How one kind of answer writes its chunks. Each object is one `data:` line. */
export interface ChunkWriter {
  opening(): readonly object[];
  delta(event: TextDelta): object;
  /** Absent where answers have no calls. */
  call?(event: CallEvent): object;
  /** The chunk with finish_reason, then perhaps one with usage. */
  closing(event: Finish): readonly object[];
}

/**
 * Streams the events. A failure before the first event rejects, so that it becomes an HTTP status; a later
 * one is an error line, after which nothing pretends to finish. When the first event takes longer than the
 * keep-alive time (a queue, a long prefill) the stream opens without it.
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
    if (planned === null) reply.request.log.error({ err: cause }, "stream failed inside");
    else logError(reply.request, planned);
    await stream.send(errorBody(planned ?? internalError()));
  } finally {
    stream.end();
    await events.return(undefined).catch(() => {});
  }
}

function chunkOf(event: ChatEvent, writer: ChunkWriter): object | undefined {
  if (event.type === "text-delta") return writer.delta(event);
  if (event.type === "tool-call-start" || event.type === "tool-call-delta") return writer.call?.(event);
  return undefined;
}

export function usage(event: Finish): object {
  return {
    prompt_tokens: event.promptTokens,
    completion_tokens: event.completionTokens,
    total_tokens: event.promptTokens + event.completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens(event.cacheUsage) },
    ...(event.draftTokens && {
      completion_tokens_details: {
        accepted_prediction_tokens: event.draftTokens.accepted,
        rejected_prediction_tokens: event.draftTokens.rejected,
      },
    }),
  };
}

/** What Pocket adds to the last chunk or the whole answer. */
export function cacheUsageAndTimings(event: Finish): {
  pocket: CacheUsage & Partial<Proposals>;
  timings: object;
} {
  const { session, kept, relocated, computed, stale, reason } = event.cacheUsage;
  const { warnings } = event;
  // The first token belongs to the prompt's time, so the rate counts the tokens after it.
  const later = Math.max(0, event.completionTokens - 1);
  const rate = event.generateMs > 0 ? (later * 1000) / event.generateMs : 0;
  return {
    pocket: {
      session,
      kept,
      relocated,
      computed,
      stale,
      reason,
      ...proposalsOf(event),
      ...(warnings && { warnings }),
    },
    timings: {
      cache_n: cachedTokens(event.cacheUsage),
      prompt_n: computed,
      prompt_ms: round(event.promptMs),
      predicted_n: event.completionTokens,
      predicted_ms: round(event.generateMs),
      predicted_per_second: round(rate),
    },
  };
}

interface Proposals {
  readonly proposed: number;
  readonly accepted: number;
}

/** In a bill only where there were any. */
function proposalsOf({
  draftTokens: { accepted, rejected } = { accepted: 0, rejected: 0 },
}: Finish): Partial<Proposals> {
  const proposed = accepted + rejected;
  return proposed > 0 ? { proposed, accepted } : {};
}

function cachedTokens(cacheUsage: CacheUsage): number {
  return cacheUsage.kept + cacheUsage.relocated;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function logFinish(log: FastifyBaseLogger, event: Finish): void {
  const { promptTokens, completionTokens, promptMs, generateMs, reason: finish, cacheUsage } = event;
  log.info(
    { ...cacheUsage, promptTokens, completionTokens, promptMs, generateMs, finish },
    "answer-finished",
  );
}
