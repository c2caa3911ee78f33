// pocket pull: a model of the registry is fetched, checked and imported, each only if it is not there yet.
import { join } from "node:path";
import { readManifest } from "../../models/manifest.ts";
import { fetchModel, registeredModel } from "../../models/registry/fetch.ts";
import type { RegisteredModel } from "../../models/registry/registry.ts";
import type { Config } from "../config/config.ts";
import { type PocketError, pocketError } from "../errors.ts";
import { folderOf, importInto } from "./import.ts";
import { ProgressPrinter } from "./progress.ts";

/**
 * Idempotent. A model folder of an earlier version is imported again from its download. An interrupted download is
 * resumed, an interrupted import starts again. Throws INTERRUPTED on a signal.
 */
export async function pull(id: string, config: Config): Promise<void> {
  const model = registeredModel(id);
  const folder = folderOf(id, config);
  const state = folderState(folder);
  if (state === "outdated")
    process.stderr.write(`pocket: ${id} was imported by an earlier version; importing it again\n`);
  if (state === "here") {
    process.stderr.write(`pocket: ${id} is here already (${folder})\n`);
    return;
  }
  const stop = new AbortController();
  const onSignal = () => stop.abort(pocketError("INTERRUPTED", `pocket pull ${id}`));
  process.once("SIGINT", onSignal).once("SIGTERM", onSignal);
  try {
    const file = await fetchWithProgress(model, config, stop.signal);
    const { repo, revision, licence, sha256 } = model;
    await importInto({ file, id, origin: { repo, revision, licence }, sha256 }, config, stop.signal);
  } finally {
    process.off("SIGINT", onSignal).off("SIGTERM", onSignal);
  }
}

/** A damaged manifest counts as "here"; opening the model reports it. */
export function folderState(folder: string): "missing" | "outdated" | "here" {
  try {
    readManifest(folder);
  } catch (cause) {
    const { code } = cause as PocketError;
    if (code === "MODEL_NOT_IMPORTED") return "missing";
    if (code === "MODEL_OUTDATED") return "outdated";
  }
  return "here";
}

async function fetchWithProgress(
  model: RegisteredModel,
  config: Config,
  signal: AbortSignal,
): Promise<string> {
  const printer = new ProgressPrinter();
  try {
    return await fetchModel(model, {
      into: join(config.text("models.dir"), "downloads"),
      mirror: config.flag("mirror"),
      onProgress: (progress) => printer.report(progress),
      onNotice(line) {
        printer.end();
        process.stderr.write(`pocket: ${line}\n`);
      },
      signal,
    });
  } finally {
    printer.end();
  }
}
