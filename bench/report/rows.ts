// The latest rows of a benchmark out of its JSON lines in bench/results/: those of the run that was stamped last, and
// of earlier runs with the same code on the same machine what it did not measure again, such as other contexts.
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

/** What a row is about, whichever grid asked for it; the rest of it was measured. */
const conditions = [
  ...["model", "weights", "kv", "kind", "context", "place", "share", "summary", "arm"],
  ...["chain", "compaction", "recording", "harness", "turn"],
];

/** The later of two rows about the same thing, in the order of runs. None where there is no file. Throws on a line that is not a row. */
export function latestRows(results: string, name: string): ResultRow[] {
  const file = join(results, `${name}.jsonl`);
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
  const rows = lines
    .map((line) => JSON.parse(line) as { readonly run?: unknown })
    .filter(({ run }) => run !== undefined)
    .map((row) => rowSchema.parse(row))
    .toSorted((a, b) => (a.run < b.run ? -1 : Number(a.run > b.run)));
  const last = rows.at(-1)?.run;
  const kinds = new Set(rows.filter(({ run }) => run === last).map(kindOf));
  const latest = new Map<string, ResultRow>();
  for (const row of rows) if (kinds.has(kindOf(row))) latest.set(conditionOf(row), row);
  return [...latest.values()];
}

function conditionOf(row: ResultRow): string {
  return JSON.stringify(conditions.map((name) => row[name] ?? null));
}

/** Rows of one kind may share a table. */
function kindOf({ model, weights, kv, machine }: ResultRow): string {
  return JSON.stringify([model, weights, kv, machine.cpu, machine.commit]);
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
