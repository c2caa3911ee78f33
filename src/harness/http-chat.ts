// A Chat on any OpenAI-compatible server over HTTP. It streams, and keeps no state between requests. It sends
// no prompt-planned event, because servers report the cost of a prompt only at the end of the answer.
import type { Chat, ChatEvent, ChatRequest } from "../chat/chat.ts";
import { errorTable, isErrorCode, PocketError, pocketError } from "../errors.ts";
import { ChunkReader, chatCompletionRequest } from "./openai-wire.ts";

export interface HttpChatOptions {
  /** Including the version: `http://127.0.0.1:8080/v1`. */
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey?: string;
  /** Omits the fields that only Pocket servers know, since others may refuse them. Default: false. */
  readonly isPlain?: boolean;
}

export class HttpChat implements Chat {
  constructor(private readonly options: HttpChatOptions) {}

  /** Throws the server's code if it is one of errors.ts, otherwise SERVER_FAILED; CANCELLED when aborted. */
  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const startMs = performance.now();
    try {
      yield* this.#events(request, startMs);
    } catch (cause) {
      if (request.signal?.aborted) throw pocketError("CANCELLED");
      if (cause instanceof PocketError) throw cause;
      throw pocketError("SERVER_FAILED", this.options.baseUrl, sentence(cause));
    }
  }

  async *#events(request: ChatRequest, startMs: number): AsyncGenerator<ChatEvent, void, undefined> {
    const reader = new ChunkReader();
    let firstMs: number | undefined;
    for await (const data of dataLines(await this.#post(request))) {
      if (data === "[DONE]") break;
      const chunk: unknown = JSON.parse(data);
      if (typeof chunk === "object" && chunk !== null && "error" in chunk) throw this.#failure(chunk, 500);
      const text = reader.read(chunk);
      if (text === "") continue;
      firstMs ??= performance.now();
      yield { type: "text-delta", text };
    }
    const { reason, usage } = reader;
    if (reason === undefined) throw new Error("its answer broke off");
    for (const call of reader.toolCalls) yield { type: "tool-call", call };
    const endMs = performance.now();
    const promptMs = (firstMs ?? endMs) - startMs;
    yield { type: "answer-finished", reason, ...usage, promptMs, generateMs: endMs - startMs - promptMs };
  }

  async #post(request: ChatRequest): Promise<ReadableStream<Uint8Array>> {
    const { baseUrl, model, apiKey, isPlain } = this.options;
    const response = await fetch(`${baseUrl.replace(/\/+$/, "")}/chat/completions`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        ...(apiKey ? { authorization: `Bearer ${apiKey}` } : {}),
      },
      body: JSON.stringify(chatCompletionRequest(model, isPlain ? plain(request) : request)),
      ...(request.signal ? { signal: request.signal } : {}),
    });
    if (response.ok && response.body) return response.body;
    const text = await response.text();
    let body: unknown;
    try {
      body = JSON.parse(text);
    } catch {
      body = { error: { message: text.slice(0, 500) } };
    }
    throw this.#failure(body, response.status);
  }

  #failure(body: unknown, status: number): PocketError {
    const { error } = body as { readonly error?: { readonly code?: unknown; readonly message?: unknown } };
    const message = typeof error?.message === "string" ? error.message : `status ${status}`;
    const code = typeof error?.code === "string" ? error.code.toUpperCase() : "";
    // A Pocket server has already added the hint to its message.
    if (isErrorCode(code)) return new PocketError(code, message.replace(errorTable[code].hint, "").trim());
    return pocketError("SERVER_FAILED", this.options.baseUrl, `${status}: ${message}`);
  }
}

function plain(request: ChatRequest): ChatRequest {
  const { session, reuse, repair, forget, fork, topK, minP, repetitionPenalty, callable, ...rest } = request;
  return rest;
}

/** The data of each server-sent event. Comments and other fields are ignored. */
async function* dataLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop()!;
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
  }
}

function sentence(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  // The message of fetch is only "fetch failed"; the reason is in its cause.
  return cause.cause instanceof Error ? `${cause.message}: ${cause.cause.message}` : cause.message;
}
