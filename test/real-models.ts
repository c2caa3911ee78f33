// Where imported real models are, for tests that need one: the configured cache folder, as scripts/test fills
// it. A test whose model is missing skips with the reason given here.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { manifestFile, modelFolderName, type WeightFormat } from "../models/manifest.ts";
import { Config } from "../src/config.ts";

export interface RealModel {
  readonly id: string;
  readonly format: WeightFormat;
  readonly folder: string;
  /** Why it cannot be used, if so. */
  readonly missing: string | undefined;
}

export function realModel(id: string, format: WeightFormat = "exact"): RealModel {
  const models = Config.read({ flags: {}, environment: process.env }).text("models.dir");
  const folder = join(models, modelFolderName(id, format));
  const missing = existsSync(join(folder, manifestFile))
    ? undefined
    : `it is not in the cache (pocket pull ${id} --weights ${format})`;
  return { id, format, folder, missing };
}

/** The title of a suite, which says so when it is skipped. */
export function titleOf({ id, format, missing }: RealModel): string {
  return missing === undefined ? `${id} ${format}` : `${id} ${format} (skipped: ${missing})`;
}
