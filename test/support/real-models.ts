// Folders of imported real models for tests, in the configured models directory (scripts/test fills it). A test whose model
// is missing skips with the reason given here.
import { join } from "node:path";
import { modelFolderName, readManifest, type WeightFormat } from "../../models/manifest.ts";
import { Config } from "../../src/config/config.ts";
import type { PocketError } from "../../src/errors.ts";

export interface RealModel {
  readonly id: string;
  readonly format: WeightFormat;
  readonly folder: string;
  /** The reason why it cannot be used. */
  readonly missing: string | undefined;
}

export function realModel(id: string, format: WeightFormat = "exact"): RealModel {
  const models = Config.read({ flags: {}, environment: process.env }).text("models.dir");
  const folder = join(models, modelFolderName(id, format));
  return { id, format, folder, missing: whyMissing(folder, id, format) };
}

function whyMissing(folder: string, id: string, format: WeightFormat): string | undefined {
  try {
    readManifest(folder);
    return undefined;
  } catch (cause) {
    const { code } = cause as PocketError;
    // A damaged manifest must fail the test, not skip it.
    if (code !== "MODEL_NOT_IMPORTED" && code !== "MODEL_OUTDATED") return undefined;
    const why = code === "MODEL_OUTDATED" ? "was imported by an earlier version" : "is not in the cache";
    return `it ${why} (pocket pull ${id} --weights ${format})`;
  }
}

/** The title of a suite, with the reason when it is skipped. */
export function titleOf({ id, format, missing }: RealModel): string {
  return missing === undefined ? `${id} ${format}` : `${id} ${format} (skipped: ${missing})`;
}
