// pocket pull: a model of the registry is fetched, checked and imported, each only if it is not there yet.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fetchModel, registeredModel } from "../../models/fetch.ts";
import { manifestFile } from "../../models/manifest.ts";
import type { RegisteredModel } from "../../models/registry.ts";
import type { Config } from "../config.ts";
import { pocketError } from "../errors.ts";
import { folderOf, importInto } from "./import.ts";
import { ProgressPrinter } from "./progress.ts";

/** Idempotent. An interrupted fetch is resumed, an interrupted import begins again. Throws INTERRUPTED on a signal. */
export async function pull(id: string, config: Config): Promise<void> {
  const model = registeredModel(id);
  const folder = folderOf(id, config);
  if (existsSync(join(folder, manifestFile))) {
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

async function fetchWithProgress(
  model: RegisteredModel,
  config: Config,
  signal: AbortSignal,
): Promise<string> {
  const printer = new ProgressPrinter();
  try {
    return await fetchModel(model, {
      into: join(config.text("models.dir"), "downloads"),
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
