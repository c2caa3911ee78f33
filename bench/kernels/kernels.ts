// The kernels alone: builds bench/kernels/native/ with CMake and runs one of its programs, or all. A program takes words
// that choose rows (all must occur) and --json for one JSON object a line; it repeats, and names its median, by
// itself.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Command } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import { thisMachine } from "../support/machine.ts";
import { Report, type Row } from "../support/results.ts";

/** `attention` for bench/kernels/native/attention_bench.cpp. */
export function kernelNames(): string[] {
  const files = readdirSync(join(packageRoot(), "bench", "kernels", "native"));
  return files.flatMap((file) => file.match(/^(\w+)_bench\.cpp$/)?.[1] ?? []).toSorted();
}

export async function kernels(names: readonly string[], words: readonly string[]): Promise<void> {
  const programs = buildKernels();
  for (const name of names) {
    const report = new Report(name, thisMachine(), packageRoot());
    for await (const row of rowsOf(programs(name), words)) report.add(row);
    report.print();
  }
}

/** Up to date with the sources; a second time costs a second. Gives the path of a program by its name. */
export function buildKernels(): (name: string) => string {
  const root = packageRoot();
  const folder = join(root, "build", "bench");
  const cmake = (...words: string[]) =>
    execFileSync("cmake", words, { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  cmake("-S", ".", "-B", folder, "-DPOCKET_BENCH=ON", "-DPOCKET_TESTS=OFF");
  cmake("--build", folder, "-j", String(cpus().length));
  return (name) => join(folder, `${name}_bench`);
}

export async function* rowsOf(program: string, words: readonly string[]): AsyncGenerator<Row> {
  const child = spawn(program, ["--json", ...words], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "close");
  for await (const line of createInterface({ input: child.stdout })) yield JSON.parse(line) as Row;
  const [status] = await ended;
  if (status !== 0) throw new Error(`${program} ended with status ${status}`);
}

/** Bytes a second that the memory gives now. */
export type BandwidthReader = () => Promise<number>;

/** Reads memory that no cache holds: bytes a second at its best repetition, a second's work each. */
export function bandwidthReader(threads: number = cpus().length): BandwidthReader {
  const program = buildKernels()("bandwidth");
  return async () => {
    for await (const row of rowsOf(program, [String(threads)])) return Number(row.max) * 1e9;
    throw new Error(`${program} printed no row`);
  };
}

/** What the memory gave at best in front of the work and behind it; not a number where there is no reader. */
export async function withBandwidth<T>(
  read: BandwidthReader | undefined,
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly bytesPerSecond: number }> {
  const before = await read?.();
  const result = await work();
  const after = await read?.();
  return { result, bytesPerSecond: Math.max(before ?? Number.NaN, after ?? Number.NaN) };
}

/** One command per program, and `kernels` for all of them. */
export function kernelCommands(): Command[] {
  const commandOf = (name: string, names: readonly string[], description: string) =>
    new Command(name)
      .argument("[words...]", "run the rows that contain all words")
      .description(description)
      .action((words: string[]) => kernels(names, words));
  const names = kernelNames();
  return [
    ...names.map((name) => commandOf(name, [name], `bench/kernels/native/${name}_bench.cpp`)),
    commandOf("kernels", names, "every program of bench/kernels/native/"),
  ];
}
