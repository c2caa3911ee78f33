// Client side of the OpenAI API: builds chat completion requests, and parses streamed chunks. Chunks come
// from any server, so every field is checked. No I/O.
import type { CacheUsage, ChatRequest, FinishReason, Message, ToolCall } from "../chat/chat.ts";

export function chatCompletionRequest(model: string, request: ChatRequest): object {
  const { messages, tools, session, reuse, repair, forget, fork, maxTokens, stop } = request;
  const pocket = defined({ session, reuse, repair, forget, fork });
  return {
    model,
    messages: messages.map(wireMessage),
    stream: true,
    stream_options: { include_usage: true },
    ...defined({
      tools: tools?.map((tool) => ({ type: "function", function: tool })),
      tool_choice: tools && wireChoice(request),
      parallel_tool_calls: tools && request.parallelToolCalls,
      response_format: wireFormat(request.format),
      max_tokens: maxTokens,
      stop,
      temperature: request.temperature,
      top_p: request.topP,
      top_k: request.topK,
      min_p: request.minP,
      repetition_penalty: request.repetitionPenalty,
      frequency_penalty: request.frequencyPenalty,
      presence_penalty: request.presencePenalty,
      seed: request.seed,
    }),
    ...(Object.keys(pocket).length > 0 ? { pocket } : {}),
  };
}

/** The API has no field for the parameters of a callable tool, so only names are sent. */
function wireChoice({ toolChoice, callable }: ChatRequest): unknown {
  const byName = ({ name }: { readonly name: string }) => ({ type: "function", function: { name } });
  if (typeof toolChoice === "object") return byName(toolChoice);
  if (!callable || toolChoice === "none") return toolChoice;
  const allowed = { mode: toolChoice ?? "auto", tools: callable.map(byName) };
  return { type: "allowed_tools", allowed_tools: allowed };
}

function wireFormat(format: ChatRequest["format"]): unknown {
  if (format?.type !== "json_schema") return format;
  const { schema, strict } = format;
  return { type: "json_schema", json_schema: { name: "answer", schema, strict } };
}

export interface ChunkUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cacheUsage: CacheUsage;
}

/** Joins chunks: text is returned at once, tool calls are complete when the stream ends. */
export class ChunkReader {
  /** By index in the stream. */
  readonly #calls = new Map<number, { id: string; name: string; arguments: string }>();
  #reason: FinishReason | undefined;
  #usage: ChunkUsage | undefined;

  /** Returns the text in the chunk; empty if it has none. */
  read(chunk: unknown): string {
    const { choices, usage, pocket } = record(chunk);
    if (usage) this.#usage = usageOf(record(usage), pocket);
    const choice = record(Array.isArray(choices) ? choices[0] : undefined);
    if (typeof choice.finish_reason === "string") this.#reason = reasonOf(choice.finish_reason);
    const { content, tool_calls } = record(choice.delta);
    if (Array.isArray(tool_calls)) for (const part of tool_calls) this.#readCall(record(part));
    return typeof content === "string" ? content : "";
  }

  /** Undefined until a chunk has a finish reason. */
  get reason(): FinishReason | undefined {
    return this.#reason;
  }

  get usage(): ChunkUsage {
    return this.#usage ?? usageOf({}, undefined);
  }

  /** Calls without an id get one that is unique in the answer. */
  get toolCalls(): readonly ToolCall[] {
    return [...this.#calls.values()].map((call, index) => ({ ...call, id: call.id || `call_${index}` }));
  }

  #readCall({ index, id, function: given }: Fields): void {
    const key = typeof index === "number" ? index : this.#calls.size;
    const call = this.#calls.get(key) ?? { id: "", name: "", arguments: "" };
    this.#calls.set(key, call);
    const { name, arguments: text } = record(given);
    if (typeof id === "string") call.id = id;
    if (typeof name === "string") call.name += name;
    if (typeof text === "string") call.arguments += text;
  }
}

interface Fields {
  readonly [field: string]: unknown;
}

function wireMessage({ role, content, reasoning, toolCalls, toolCallId, name }: Message): object {
  const calls = toolCalls?.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  return {
    role,
    content,
    ...defined({ reasoning_content: reasoning, tool_calls: calls, tool_call_id: toolCallId, name }),
  };
}

function usageOf(usage: Fields, pocket: unknown): ChunkUsage {
  const promptTokens = number(usage.prompt_tokens);
  const completionTokens = number(usage.completion_tokens);
  const cached = number(record(usage.prompt_tokens_details).cached_tokens);
  const own = record(pocket);
  const cacheUsage: CacheUsage =
    typeof own.kept === "number"
      ? {
          session: String(own.session),
          kept: own.kept,
          relocated: number(own.relocated),
          computed: number(own.computed),
          stale: number(own.stale),
          reason: String(own.reason),
        }
      : {
          session: "",
          kept: cached,
          relocated: 0,
          computed: promptTokens - cached,
          stale: 0,
          reason: "The server tells how many tokens were cached, and not why.",
        };
  return { promptTokens, completionTokens, cacheUsage };
}

function reasonOf(text: string): FinishReason {
  return text === "length" || text === "tool_calls" ? text : "stop";
}

function record(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

/** The fields that are not undefined. */
function defined(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
