// Rows for people (a Markdown table on standard output) and for machines (one JSON object a line, appended to
// bench/results/<name>.jsonl with the machine in each row).
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Machine } from "./machine.ts";

export { median } from "./samples.ts";

export type Row = Readonly<Record<string, string | number>>;

export class Report {
  readonly #rows: Row[] = [];
  readonly #file: string;

  constructor(
    private readonly name: string,
    private readonly machine: Machine,
    root: string,
  ) {
    const folder = join(root, "bench", "results");
    mkdirSync(folder, { recursive: true });
    this.#file = join(folder, `${name}.jsonl`);
  }

  /** Written at once, so that an interrupted run keeps what it measured. */
  add(row: Row): void {
    this.#rows.push(row);
    const stamp = { bench: this.name, at: new Date().toISOString(), ...row, machine: this.machine };
    appendFileSync(this.#file, `${JSON.stringify(stamp)}\n`);
    process.stderr.write(`${Object.values(row).join(" · ")}\n`);
  }

  /** The rows as they are, or as `arranged` for people. */
  print(arranged: (rows: readonly Row[]) => readonly Row[] = (rows) => rows): void {
    const rows = arranged(this.#rows);
    const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const cells = rows.map((row) => columns.map((column) => shown(row[column])));
    const { cpu, cores, features, memoryGiB, commit, load } = this.machine;
    const machine = `${cpu}, ${cores} cores, ${memoryGiB} GiB, ${features.join(" ")}`;
    const date = new Date().toISOString().slice(0, 10);
    process.stdout.write(`${machine}; commit ${commit}; ${date}; load before ${load}\n\n`);
    for (const line of [columns, columns.map(() => "---"), ...cells])
      process.stdout.write(`| ${line.join(" | ")} |\n`);
  }
}

function shown(value: string | number | undefined): string {
  if (typeof value !== "number") return value ?? "";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
