// The rows of the latest run of a benchmark, out of its JSON lines in bench/results/.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const rowSchema = z.looseObject({
  run: z.string(),
  at: z.string(),
  model: z.string(),
  weights: z.string(),
  kv: z.string(),
  load: z.number().optional(),
  machine: z.object({
    cpu: z.string(),
    cores: z.number(),
    features: z.array(z.string()),
    memoryGiB: z.number(),
    node: z.string(),
    commit: z.string(),
  }),
});

export type ResultRow = z.infer<typeof rowSchema>;

/** Of the run that was stamped last; none where there is no file. Throws on a line that is not a row. */
export function latestRows(results: string, name: string): ResultRow[] {
  const file = join(results, `${name}.jsonl`);
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
  const rows = lines
    .map((line) => JSON.parse(line) as { readonly run?: unknown })
    .filter(({ run }) => run !== undefined)
    .map((row) => rowSchema.parse(row));
  const last = rows
    .map(({ run }) => run)
    .toSorted()
    .at(-1);
  return rows.filter(({ run }) => run === last);
}

export function number(row: ResultRow, key: string): number {
  const value = row[key];
  if (typeof value === "number") return value;
  throw new Error(`A row has no number '${key}': ${JSON.stringify(row)}`);
}

/** Absent numbers are undefined; anything else than a number is an error. */
export function maybe(row: ResultRow, key: string): number | undefined {
  return row[key] === undefined ? undefined : number(row, key);
}

export function text(row: ResultRow, key: string): string {
  const value = row[key];
  if (typeof value === "string") return value;
  throw new Error(`A row has no text '${key}': ${JSON.stringify(row)}`);
}
