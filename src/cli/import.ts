// pocket import: one GGUF file that is here already becomes a model folder.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { importGguf } from "../../models/import.ts";
import { type LinearKind, type Manifest, modelFolderName, type WeightFormat } from "../../models/manifest.ts";
import type { Config } from "../config/config.ts";
import { PocketError, pocketError } from "../errors.ts";
import { ProgressPrinter } from "./progress.ts";

export async function importFile(file: string, id: string, config: Config): Promise<void> {
  if (!existsSync(file)) throw pocketError("BAD_GGUF", file, "there is no such file");
  if (!/^[\w.-]+$/.test(id)) {
    throw new PocketError("BAD_CONFIG", `--id must be letters, digits, '.', '_' and '-', not '${id}'.`);
  }
  await importInto({ file, id }, config);
  process.stderr.write(`pocket: serve it with: pocket serve --model ${id}\n`);
}

export interface ImportSource {
  readonly file: string;
  readonly id: string;
  readonly origin?: { readonly repo: string; readonly revision: string; readonly licence: string };
  readonly sha256?: string;
}

/** Imports with progress and says what came out. */
export async function importInto(
  source: ImportSource,
  config: Config,
  signal?: AbortSignal,
): Promise<Manifest> {
  const printer = new ProgressPrinter();
  try {
    const manifest = await importGguf({
      ...source,
      weights: weightsOf(config),
      linear: linearOf(config),
      into: config.text("models.dir"),
      onProgress: (progress) => printer.report(progress),
      ...(signal && { signal }),
    });
    printer.end();
    const { bytes, bitsPerWeight, format } = manifest.weights;
    const size = `${(bytes / 1e6).toFixed(0)} MB, ${bitsPerWeight.toFixed(2)} bits per weight`;
    process.stderr.write(`pocket: ${source.id} is imported (${format}: ${size})\n`);
    return manifest;
  } finally {
    printer.end();
  }
}

export function weightsOf(config: Config): WeightFormat {
  return config.choice("weights");
}

export function linearOf(config: Config): LinearKind {
  return config.choice("linear");
}

/** Where the model that the settings name lies, or would lie. */
export function folderOf(id: string, config: Config): string {
  return join(config.text("models.dir"), modelFolderName(id, weightsOf(config), linearOf(config)));
}
