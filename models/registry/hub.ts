// One file from a model hub (the Hugging Face layout) over HTTP: resumed where an earlier attempt stopped,
// tried again when the line drops. It says when the hub is of no use; whether there is another source is not
// known here.
import type { HashedFile } from "./hashed-file.ts";
import type { RegisteredModel } from "./registry.ts";

export interface HubOptions {
  /** Scheme and host, without a slash at the end. */
  readonly hub: string;
  /** Until the first byte of an answer. */
  readonly connectTimeoutMs: number;
  /** Between two pieces of a body. */
  readonly stallTimeoutMs: number;
  readonly onBytes: (bytes: number) => void;
  readonly signal?: AbortSignal;
}

/** The hub cannot give the file: unreachable, refusing, or dropping the line again and again. */
export class HubUnavailable extends Error {
  override readonly name = "HubUnavailable";
}

/** Attempts in a row that bring no new byte before the hub is given up. */
const fruitlessAttempts = 2;

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
      if (!(cause instanceof LineDropped)) throw cause;
      fruitless = file.bytes > before ? 0 : fruitless + 1;
      if (fruitless >= fruitlessAttempts) throw new HubUnavailable(cause.message);
    }
  }
}

/** The connection ended before the body did. */
class LineDropped extends Error {}

async function attempt(url: string, file: HashedFile, total: number, options: HubOptions): Promise<void> {
  const timer = new AbortController();
  let deadline = setTimeout(() => timer.abort(), options.connectTimeoutMs);
  const signal = options.signal ? AbortSignal.any([options.signal, timer.signal]) : timer.signal;
  try {
    const response = await request(url, file.bytes, signal, options);
    if (file.bytes > 0 && response.status === 200) await file.restart();
    for await (const piece of pieces(response)) {
      clearTimeout(deadline);
      deadline = setTimeout(() => timer.abort(), options.stallTimeoutMs);
      await file.append(piece);
      options.onBytes(file.bytes);
      // More than the publisher's file has: the digest will say so; no need to fill the disk.
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
  // A compressed answer could not be resumed by offset.
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

async function* pieces(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body!.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((cause: Error) => {
        throw new LineDropped(cause.message);
      });
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
