// pocket ls: the models of the registry and the folders that are here, one line each.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Manifest, modelFolderName, readManifest } from "../../models/manifest.ts";
import { registry } from "../../models/registry/registry.ts";
import type { Config } from "../config/config.ts";
import type { PocketError } from "../errors.ts";

export function list(config: Config, write: (line: string) => void): void {
  const directory = config.text("models.dir");
  const { here, outdated } = importedModels(directory);
  const rows = [["id", "weights", "size", "state", ""]];
  for (const { id, bytes, summary } of registry) {
    const folders = here.filter((manifest) => manifest.id === id);
    if (folders.length === 0) rows.push([id, "", megabytes(bytes), "to pull", summary]);
    for (const manifest of folders) rows.push(importedRow(manifest, summary));
  }
  const known = new Set(registry.map(({ id }) => id));
  for (const manifest of here) if (!known.has(manifest.id)) rows.push(importedRow(manifest, manifest.name));
  for (const name of outdated) rows.push([name, "", "", "to import again", "made by an earlier version"]);
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  for (const row of rows)
    write(
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join("  ")
        .trimEnd(),
    );
  write(`\nfolder: ${directory}`);
}

/** Folders with an unreadable manifest are left out. `outdated`: names of folders. */
function importedModels(directory: string): { here: Manifest[]; outdated: string[] } {
  const found = { here: [] as Manifest[], outdated: [] as string[] };
  if (!existsSync(directory)) return found;
  for (const { name } of readdirSync(directory, { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  ))
    try {
      found.here.push(readManifest(join(directory, name)));
    } catch (cause) {
      if ((cause as PocketError).code === "MODEL_OUTDATED") found.outdated.push(name);
    }
  return found;
}

function importedRow({ id, weights }: Manifest, summary: string): string[] {
  // As the folder's name has it: everything behind the id.
  const kind = modelFolderName(id, weights.format, weights.linear).slice(id.length + 1);
  return [id, kind, megabytes(weights.bytes), "imported", summary];
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(0)} MB`;
}
