// Downloads one file from a model hub (Hugging Face layout) over HTTP: resumes an earlier attempt, retries when the
// connection drops, and throws HubUnavailable when the hub cannot provide the file.
import type { HashedFile } from "./hashed-file.ts";
import type { RegisteredModel } from "./registry.ts";

export interface HubOptions {
  /** Scheme and host, without a trailing slash. */
  readonly hub: string;
  /** Until the first byte of a response. */
  readonly connectTimeoutMs: number;
  /** Between two chunks of a body. */
  readonly stallTimeoutMs: number;
  readonly onBytes: (bytes: number) => void;
  readonly signal?: AbortSignal;
}

/** The hub is unreachable, refuses the file, or drops the connection repeatedly. */
export class HubUnavailable extends Error {
  override readonly name = "HubUnavailable";
}

/** Consecutive attempts without a new byte before the download fails. */
const maxFruitlessAttempts = 2;

/** Appends until the file has as many bytes as the model, or the hub has no more. Throws HubUnavailable. */
export async function downloadFromHub(
  model: RegisteredModel,
  file: HashedFile,
  options: HubOptions,
): Promise<void> {
  const url = `${options.hub}/${model.repo}/resolve/${model.revision}/${model.file}`;
  for (let fruitless = 0; file.bytes < model.bytes; ) {
    const before = file.bytes;
    try {
      await attempt(url, file, model.bytes, options);
      if (file.bytes === before) throw new HubUnavailable("it sent an empty answer");
    } catch (cause) {
      options.signal?.throwIfAborted();
      if (!(cause instanceof ConnectionLost)) throw cause;
      fruitless = file.bytes > before ? 0 : fruitless + 1;
      if (fruitless >= maxFruitlessAttempts) throw new HubUnavailable(cause.message);
    }
  }
}

/** The connection ended before the body did. */
class ConnectionLost extends Error {}

async function attempt(url: string, file: HashedFile, total: number, options: HubOptions): Promise<void> {
  const timer = new AbortController();
  let deadline = setTimeout(() => timer.abort(), options.connectTimeoutMs);
  const signal = options.signal ? AbortSignal.any([options.signal, timer.signal]) : timer.signal;
  try {
    const response = await request(url, file.bytes, signal, options);
    if (file.bytes > 0 && response.status === 200) await file.restart();
    for await (const chunk of chunks(response)) {
      clearTimeout(deadline);
      deadline = setTimeout(() => timer.abort(), options.stallTimeoutMs);
      await file.append(chunk);
      options.onBytes(file.bytes);
      // Longer than the publisher's file: stop here, the digest check rejects it.
      if (file.bytes > total) return timer.abort();
    }
  } finally {
    clearTimeout(deadline);
  }
}

async function request(
  url: string,
  start: number,
  signal: AbortSignal,
  options: HubOptions,
): Promise<Response> {
  // A compressed body could not be resumed by offset.
  const headers: Record<string, string> = { "accept-encoding": "identity" };
  if (start > 0) headers.range = `bytes=${start}-`;
  let response: Response;
  try {
    response = await fetch(url, { headers, signal });
  } catch (cause) {
    throw new HubUnavailable(connectFailure(cause as Error, options));
  }
  const resumed = response.headers.get("content-range")?.startsWith(`bytes ${start}-`) ?? false;
  if (response.status === 200 || (response.status === 206 && resumed)) return response;
  await response.body?.cancel();
  throw new HubUnavailable(`it answered ${response.status} for ${new URL(url).pathname}`);
}

function connectFailure(cause: Error, options: HubOptions): string {
  if (cause.name === "AbortError") return `no answer within ${options.connectTimeoutMs / 1000} s`;
  const { code, message } = (cause.cause ?? cause) as NodeJS.ErrnoException;
  return code ?? message;
}

async function* chunks(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body!.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((cause: Error) => {
        throw new ConnectionLost(cause.message);
      });
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
