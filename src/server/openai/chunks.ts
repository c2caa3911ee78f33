// The OpenAI shapes of answers: SSE chunks of both routes, logprobs, usage, and the keys `pocket` and `timings`.
// respond.ts decides when a chunk is sent.
import type { CacheUsage, ChatEvent, TokenLogprob } from "../../chat/chat.ts";

export type TextDelta = Extract<ChatEvent, { type: "text-delta" }>;
/** The events of a call that are streamed; a complete call shows in the finish reason only. */
export type CallEvent = Extract<ChatEvent, { type: "tool-call-start" | "tool-call-delta" }>;
export type Finish = Extract<ChatEvent, { type: "answer-finished" }>;
export type Logprobs = NonNullable<TextDelta["logprobs"]>;

/** Shapes the events of one answer. Each object is one `data:` line. */
export interface ChunkWriter {
  opening(): readonly object[];
  delta(event: TextDelta): object;
  /** Absent on routes without tool calls. */
  call?(event: CallEvent): object;
  /** The chunk with finish_reason; with include_usage one more with usage. */
  closing(event: Finish): readonly object[];
}

export function chunkOf(event: ChatEvent, writer: ChunkWriter): object | undefined {
  if (event.type === "text-delta") return writer.delta(event);
  if (event.type === "tool-call-start" || event.type === "tool-call-delta") return writer.call?.(event);
  return undefined;
}

/** Chunks of POST /v1/chat/completions. */
export function chatChunks(head: object, includeUsage: boolean): ChunkWriter {
  const base = { ...head, object: "chat.completion.chunk" };
  const chunk = (delta: object, finishReason: string | null, logprobs: object | null = null) => ({
    ...base,
    choices: [{ index: 0, delta, logprobs, finish_reason: finishReason }],
    // OpenAI's rule: with include_usage every chunk has the key, and only the last one a value.
    ...(includeUsage && { usage: null }),
  });
  return {
    opening: () => [chunk({ role: "assistant", content: "" }, null)],
    delta: ({ text, logprobs }) => chunk({ content: text }, null, logprobs ? chatLogprobs(logprobs) : null),
    call: (event) => chunk({ tool_calls: [wireCallDelta(event)] }, null),
    closing(finish) {
      const last = { ...chunk({}, finish.reason), ...cacheUsageAndTimings(finish) };
      if (!includeUsage) return [last];
      return [last, { ...base, choices: [], usage: usage(finish), ...cacheUsageAndTimings(finish) }];
    },
  };
}

/** The first chunk has index, id and name; later ones have the index and a fragment of the arguments. */
function wireCallDelta(event: CallEvent): object {
  const { index } = event;
  if (event.type === "tool-call-delta") return { index, function: { arguments: event.arguments } };
  return { index, id: event.id, type: "function", function: { name: event.name, arguments: "" } };
}

export function chatLogprobs(logprobs: Logprobs): object {
  const entry = ({ token, logprob, bytes }: TokenLogprob) => ({ token, logprob, bytes });
  return {
    content: logprobs.map((chosen) => ({ ...entry(chosen), top_logprobs: chosen.top.map(entry) })),
    refusal: null,
  };
}

/** Chunks of POST /v1/completions. */
export function completionChunks(head: object, includeUsage: boolean): ChunkWriter {
  let offset = 0;
  const chunk = (text: string, finishReason: string | null, logprobs: object | null = null) => ({
    ...head,
    choices: [{ index: 0, text, logprobs, finish_reason: finishReason }],
    ...(includeUsage && { usage: null }),
  });
  return {
    opening: () => [],
    delta({ text, logprobs }) {
      const shaped = logprobs ? completionLogprobs(logprobs, offset) : null;
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

/** The older shape, a list per field; `text_offset` counts characters from the start of the answer. */
export function completionLogprobs(logprobs: Logprobs, start: number): object {
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

/** `pocket` and `timings` of the last chunk or of the whole answer. */
export function cacheUsageAndTimings(event: Finish): {
  pocket: CacheUsage & Partial<DraftCounts>;
  timings: object;
} {
  const { session, kept, relocated, computed, stale, reason } = event.cacheUsage;
  const { warnings } = event;
  // The time of the first token counts as prompt time, so the rate is over the tokens after it.
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
      ...draftCountsOf(event),
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

interface DraftCounts {
  readonly proposed: number;
  readonly accepted: number;
}

/** Absent for an answer without draft tokens. */
function draftCountsOf({
  draftTokens: { accepted, rejected } = { accepted: 0, rejected: 0 },
}: Finish): Partial<DraftCounts> {
  const proposed = accepted + rejected;
  return proposed > 0 ? { proposed, accepted } : {};
}

function cachedTokens(cacheUsage: CacheUsage): number {
  return cacheUsage.kept + cacheUsage.relocated;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
