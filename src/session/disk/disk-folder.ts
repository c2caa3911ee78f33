// Lists the files that an earlier process left in the folder of the disk tier: pairs of a cell file and a sidecar.
// Deletes incomplete pairs and temporary files. Reads sidecars only; cells are checked when they are loaded.
import { readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileNameOf, parseSidecar, type Sidecar } from "./sidecar.ts";

export interface File extends Sidecar {
  readonly name: string;
  /** Of the cells and the sidecar. */
  readonly bytes: number;
}

const fileNamePattern = /^([\w-]{32})\.(kv|json)(\..*)?$/;

/** Least recently used first. Throws what the file system throws. */
export function filesIn(folder: string): File[] {
  const names = new Set<string>();
  for (const entry of readdirSync(folder)) {
    const [, name, kind, rest] = fileNamePattern.exec(entry) ?? [];
    if (name && kind && !rest) names.add(name);
    // A temporary file of a write that did not finish.
    else if (name) rmSync(join(folder, entry), { force: true });
  }
  const files = Array.from(names).flatMap((name) => fileNamed(folder, name) ?? []);
  return files.sort((a, b) => a.usedAt - b.usedAt);
}

function fileNamed(folder: string, name: string): File | undefined {
  const path = (kind: string) => join(folder, `${name}.${kind}`);
  try {
    const text = readFileSync(path("json"), "utf8");
    const { size } = statSync(path("kv"));
    const sidecar = parseSidecar(text);
    if (sidecar && fileNameOf(sidecar.id, sidecar.salt) === name) {
      return { ...sidecar, name, bytes: size + text.length };
    }
  } catch {
    // One file is missing or unreadable, so the pair is useless.
  }
  for (const kind of ["json", "kv"]) rmSync(path(kind), { force: true });
  return undefined;
}
