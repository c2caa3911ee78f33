// The engine under load, no server in between: streams together against one alone, the gaps of a running stream
// while the long prompt of another request is computed (at several budgets), and reading cells from a file against
// computing them again. Gaps are taken where the reader gets its tokens.

import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { KvType, Runner } from "../../src/engine/addon.ts";
import { Engine } from "../../src/engine/engine.ts";
import { greedy, type Job, type SequencePort } from "../../src/engine/job.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf, openBenchRunner } from "../support/open-model.ts";
import { activationsOption, kvOption, modelOption } from "../support/options.ts";
import { Report } from "../support/results.ts";

export interface LoadBenchOptions {
  readonly model: readonly string[];
  readonly kv: string;
  readonly activations: string;
  /** Tokens of the long prompt, and of the larger file. */
  readonly prompt: number;
  /** Of the long prompt, how many are read while the stream is watched; its end is the dearest part. */
  readonly watched: number;
  /** New tokens of each stream. */
  readonly tokens: number;
}

/** `step_tokens` and `gap_ms`; a gap of 0 means no target. */
const paces: readonly (readonly [stepTokens: number, gapMs: number])[] = [
  [512, 0],
  [128, 0],
  [512, 200],
  [512, 100],
];

export async function load(options: LoadBenchOptions): Promise<void> {
  const report = new Report("load", thisMachine(), packageRoot());
  for (const name of options.model) {
    const { runner, manifest } = await openBenchRunner(folderOf(name), {
      tokens: 2 * options.prompt + 8192,
      kvType: options.kv as KvType,
      activations: options.activations as "int8" | "f32",
    });
    const label = `${manifest.id} kv=${options.kv}`;
    await streams(report, label, runner, options.tokens);
    await depths(report, label, runner, options);
    await runner.close();
  }
  report.print();
}

async function streams(report: Report, label: string, runner: Runner, tokens: number): Promise<void> {
  const rates = new Map<number, number>();
  for (const count of [1, 8]) {
    const engine = new Engine(runner, { stepTokens: 512 });
    const sequences = Array.from({ length: count }, () => engine.create());
    await Promise.all(sequences.map((one, index) => read(one, text(64, index))));
    const begin = performance.now();
    await Promise.all(sequences.map((one, index) => say(one, tokens, index)));
    const rate = (count * tokens) / ((performance.now() - begin) / 1000);
    rates.set(count, rate);
    report.add({ row: `${label} ${count} x ${tokens} greedy tokens`, "tokens/s": rate });
    for (const one of sequences) one.release();
  }
  report.add({ row: `${label} 8 streams against 1`, times: rates.get(8)! / rates.get(1)! });
}

/** Computes the long prompt once; its cells are saved on the way, and streams run during its last part. */
async function depths(
  report: Report,
  label: string,
  runner: Runner,
  { prompt, watched }: LoadBenchOptions,
): Promise<void> {
  const engine = new Engine(runner, { stepTokens: 512 });
  const sequence = engine.create();
  const folder = mkdtempSync(join(tmpdir(), "pocket-bench-"));
  const file = join(folder, "cells.kv");
  let seconds = 0;
  try {
    for (const length of [Math.min(4096, prompt - watched), prompt - watched, prompt]) {
      seconds += await timed(() => read(sequence, text(length - sequence.length, length)));
      if (length === prompt - watched) {
        await sequence.save(file);
        await gaps(report, label, runner, file, watched);
      } else await files(report, `${label} ${length} cells`, engine, sequence, file, seconds);
    }
  } finally {
    rmSync(folder, { recursive: true });
    sequence.release();
  }
}

/** Computes a prompt that begins with the file's cells during one stream, for every step budget. */
async function gaps(
  report: Report,
  label: string,
  runner: Runner,
  file: string,
  watched: number,
): Promise<void> {
  for (const [stepTokens, gapMs] of paces) {
    const engine = new Engine(runner, { stepTokens, ...(gapMs > 0 && { gapMs }) });
    const [stream, reader] = [engine.create(), await engine.load(file)];
    const depth = reader.length;
    const stopped = new AbortController();
    const times: number[] = [];
    const watching = watch(stream, stopped.signal, () => times.push(performance.now()));
    // The stream has begun before the other client comes.
    while (times.length < 8) await new Promise((resolve) => setTimeout(resolve, 10));
    const begin = performance.now();
    const seconds = await timed(() => read(reader, text(watched, 10)));
    stopped.abort();
    await watching;
    const during = times.filter((time) => time >= begin);
    const found = during.slice(1).map((time, index) => time - during[index]!);
    report.add({
      row: `${label} gap comparison ${watched} prompt tokens @ d${depth}, step_tokens=${stepTokens} gap_ms=${gapMs || "none"}`,
      "p50 ms": quantile(found, 0.5),
      "p99 ms": quantile(found, 0.99),
      "max ms": Math.max(...found),
      "tokens/s": watched / seconds,
    });
    for (const one of [stream, reader]) one.release();
  }
}

async function files(
  report: Report,
  label: string,
  engine: Engine,
  sequence: SequencePort,
  file: string,
  seconds: number,
): Promise<void> {
  report.add({ row: `${label}: compute`, seconds });
  report.add({
    row: `${label}: save`,
    seconds: await timed(() => sequence.save(file)),
    MiB: statSync(file).size / 2 ** 20,
  });
  // The file is in the system's memory still, as it is when a session comes back soon.
  const loads = await timed(async () => (await engine.load(file)).release());
  report.add({ row: `${label}: load`, seconds: loads, times: seconds / loads });
}

function jobOf(sequence: SequencePort, tokens: Int32Array, maxTokens: number, signal?: AbortSignal): Job {
  const end = sequence.length;
  const splices = [{ start: end, end, tokens }];
  const none = new Set<number>();
  return { splices, sampling: greedy, maxTokens, stopTokens: none, top: 0, ...(signal && { signal }) };
}

async function drained(answer: AsyncIterable<unknown>, each: () => void = () => undefined): Promise<void> {
  for await (const _ of answer) each();
}

const read = (sequence: SequencePort, tokens: Int32Array) =>
  drained(sequence.run(jobOf(sequence, tokens, 0)));

const say = (sequence: SequencePort, tokens: number, salt: number) =>
  drained(sequence.run(jobOf(sequence, text(1, salt), tokens)));

/** A stream that runs until the signal fires. */
async function watch(sequence: SequencePort, signal: AbortSignal, each: () => void): Promise<void> {
  try {
    await drained(sequence.run(jobOf(sequence, text(16, 1), 4096, signal)), each);
  } catch (cause) {
    if (!signal.aborted) throw cause;
  }
}

const text = (length: number, salt: number) =>
  Int32Array.from({ length }, (_, index) => 100 + ((index * 7919 + salt * 104_729) % 40_000));

async function timed(run: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await run();
  return (performance.now() - begin) / 1000;
}

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? Number.NaN;
}

export const loadCommand = new Command("load")
  .description(
    "concurrent streams, gaps of a stream during a long prefill, loading cells against computing them",
  )
  .addOption(modelOption())
  .addOption(kvOption())
  .addOption(activationsOption())
  .option("--prompt <tokens>", "length of the long prompt", Number, 16_384)
  .option(
    "--watched <tokens>",
    "tokens at the end of the long prompt that are read during a stream",
    Number,
    2048,
  )
  .option("--tokens <n>", "new tokens of each stream", Number, 256)
  .action(load);
