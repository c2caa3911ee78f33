// The rows that a bench of a commit wrote, and which of their numbers are times or rates. A row is known by its
// texts; two commits are compared where they have a row and a number of the same names.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Row and column → value, in the order of the file. */
export type Measured = ReadonlyMap<string, number>;

/** Columns that say how well the others were measured, and texts that differ from run to run. */
const aside = new Set(["min", "max", "n", "at", "machine", "of limit"]);

/** `tokens/s`, `GB/s`, `GMAC/s`: more is better. `ms`, `first token ms`, `s`, `seconds`: less is. */
export function isRate(column: string): boolean {
  return /\/s$/i.test(column);
}

function isTime(column: string): boolean {
  return /(^|\s)(ms|s|seconds)$/.test(column);
}

/** Of all lines of JSON in the folder. A row that comes twice counts with its last. */
export function measuredIn(folder: string): Measured {
  const rows = new Map<string, number>();
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".jsonl")) : [];
  const lines = files.flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").filter(Boolean));
  for (const line of lines) {
    const cells = Object.entries(JSON.parse(line) as Record<string, unknown>).filter(
      ([key]) => !aside.has(key),
    );
    const name = cells.flatMap(([, value]) => (typeof value === "string" ? [value] : [])).join(" · ");
    for (const [column, value] of cells) {
      if (typeof value === "number" && (isRate(column) || isTime(column)))
        rows.set(`${name} | ${column}`, value);
    }
  }
  return rows;
}
