// pocket ls: the models of the registry and the folders that are here, one line each.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { type Manifest, manifestFile, readManifest } from "../../models/manifest.ts";
import { registry } from "../../models/registry.ts";
import type { Config } from "../config.ts";

export function list(config: Config, write: (line: string) => void): void {
  const directory = config.text("models.dir");
  const here = importedModels(directory);
  const rows = [["id", "weights", "size", "state", ""]];
  for (const { id, bytes, summary } of registry) {
    const folders = here.filter((manifest) => manifest.id === id);
    if (folders.length === 0) rows.push([id, "", megabytes(bytes), "to pull", summary]);
    for (const manifest of folders) rows.push(importedRow(manifest, summary));
  }
  const known = new Set(registry.map(({ id }) => id));
  for (const manifest of here) if (!known.has(manifest.id)) rows.push(importedRow(manifest, manifest.name));
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

/** A folder whose manifest cannot be read is left out: ls is no judge. */
function importedModels(directory: string): Manifest[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && existsSync(join(directory, entry.name, manifestFile)))
    .flatMap((entry) => {
      try {
        return [readManifest(join(directory, entry.name))];
      } catch {
        return [];
      }
    });
}

function importedRow(manifest: Manifest, summary: string): string[] {
  return [manifest.id, manifest.weights.format, megabytes(manifest.weights.bytes), "imported", summary];
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(0)} MB`;
}
