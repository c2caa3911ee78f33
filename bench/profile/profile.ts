// Splits the time of a decode step and of a prompt chunk into parts, by the addon's own counters: for
// each number of threads and depth, the median of a part over several steps, its share of the whole, and its rate
// against the memory bandwidth. Each part is its own median, so they do not add up exactly.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import type { Manifest } from "../../models/manifest.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { KvType, Runner, SequenceId } from "../../src/engine/addon.ts";
import { greedy } from "../../src/engine/job.ts";
import { threads as configuredThreads } from "../engine/engine.ts";
import { isChosen, text } from "../engine/rows.ts";
import { append, chunkTokens as chunk } from "../fidelity/cells.ts";
import { type BandwidthReader, bandwidthReader, withBandwidth } from "../kernels/kernels.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf, openBenchRunner } from "../support/open-model.ts";
import {
  activationsOption,
  depthsOption,
  kvsOption,
  modelOption,
  numbers,
  repeatOption,
  rowsOption,
} from "../support/options.ts";
import { Report } from "../support/results.ts";
import { median } from "../support/samples.ts";
import { between, linesOf, type StepShape, type StepTime, sideBySide } from "./parts.ts";

export interface ProfileBenchOptions {
  readonly model: readonly string[];
  readonly kv: readonly string[];
  readonly activations: string;
  readonly depths: readonly number[];
  readonly rows: readonly string[];
  /** Absent: as configured, and one. */
  readonly threads?: readonly number[];
  readonly repeat: number;
  readonly bandwidth: boolean;
}

/** Decode steps for each repetition of a prefill. */
const decodes = 8;

interface Condition {
  readonly report: Report;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly runner: Runner;
  readonly manifest: Manifest;
  readonly cellBytes: number;
  readonly repeat: number;
  /** By as many threads. */
  readonly bandwidth: BandwidthReader | undefined;
}

export async function profile(options: ProfileBenchOptions): Promise<void> {
  const report = new Report("profile", thisMachine(), packageRoot());
  const folder = mkdtempSync(join(tmpdir(), "pocket-profile-"));
  try {
    for (const name of options.model) {
      for (const kv of options.kv) await measureModel(report, name, kv as KvType, options, folder);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  report.print(sideBySide);
}

/** The context is computed once and comes from a file for further numbers of threads. */
async function measureModel(
  report: Report,
  name: string,
  kvType: KvType,
  options: ProfileBenchOptions,
  folder: string,
): Promise<void> {
  const deepest = Math.max(...options.depths);
  const activations = options.activations as "int8" | "f32";
  const file = join(folder, `${name}.${kvType}`);
  const counts = options.threads ?? [...new Set([configuredThreads(), 1])];
  for (const [index, threads] of counts.entries()) {
    const tokens = deepest + chunk * 3 + 16;
    const choice = { tokens, kvType, activations, threads };
    const { runner, manifest } = await openBenchRunner(folderOf(name), choice);
    try {
      const { kvBytes, pages, pageSize } = runner.describe();
      const bandwidth = options.bandwidth ? bandwidthReader(threads) : undefined;
      const labels = {
        model: manifest.id,
        weights: `${manifest.weights.format}, activations ${activations}`,
        kv: kvType,
        threads,
      };
      const cellBytes = kvBytes / (pages * pageSize);
      const { repeat } = options;
      const condition = { report, labels, runner, manifest, cellBytes, repeat, bandwidth };
      const context = deepest > 0 && index > 0 ? await runner.load(file) : runner.newSequence();
      if (deepest > 0 && index === 0) {
        await append(runner, context, Int32Array.from(text(deepest, 0, manifest.shapes.vocab)));
        if (counts.length > 1) await runner.save(context, file);
      }
      await measureRows(condition, context, options);
    } finally {
      await runner.close();
    }
  }
}

async function measureRows(
  condition: Condition,
  context: SequenceId,
  { depths, rows: words }: ProfileBenchOptions,
): Promise<void> {
  for (const depth of depths) {
    for (const rows of [1, chunk]) {
      const row = `${rows === 1 ? "decode" : `pp${rows}`} @ d${depth}`;
      if (isChosen(row, words)) await measureRow(condition, context, row, { rows, depth });
    }
  }
}

async function measureRow(
  condition: Condition,
  context: SequenceId,
  row: string,
  shape: StepShape,
): Promise<void> {
  const { report, labels, manifest, cellBytes, bandwidth } = condition;
  const { result: steps, bytesPerSecond } = await withBandwidth(bandwidth, () =>
    (shape.rows === 1 ? decode : prefill)(condition, context, shape),
  );
  const lines = linesOf(steps, shape, manifest, cellBytes);
  const whole = median(lines.find(({ part }) => part === "the whole step")!.ms);
  for (const { part, ms, multiplyAdds, bytes, readsCells } of lines) {
    // A decode row shares its weights with no other row, so reading bounds it; in attention several heads share a key.
    const isDecode = shape.rows === 1;
    const isMultiplying = isDecode ? readsCells && bytes > 0 : multiplyAdds > 0;
    const middle = median(ms);
    report.add({
      ...labels,
      row,
      part,
      ms: middle,
      share: middle / whole,
      ...(isMultiplying && { "GMAC/s": multiplyAdds / middle / 1e6 }),
      ...(isDecode && bytes > 0 && { "GB/s": bytes / middle / 1e6 }),
      n: ms.length,
    });
  }
  if (bandwidth) report.add({ ...labels, row, part: "memory", "GB/s": bytesPerSecond / 1e9 });
}

/** Token after token behind the context, the first ones uncounted. */
async function decode(
  { runner, repeat }: Condition,
  context: SequenceId,
  { depth }: StepShape,
): Promise<StepTime[]> {
  const id = runner.fork(context, depth);
  const steps: StepTime[] = [];
  const uncounted = 4;
  for (let draw = 0, last = 200; draw < repeat * decodes + uncounted; draw++) {
    const { length } = runner.sequence(id);
    runner.splice(id, [{ start: length, end: length, count: 1 }]);
    const { token, time } = await timedStep(runner, id, Int32Array.of(last), draw);
    last = token;
    if (draw >= uncounted) steps.push(time);
  }
  runner.release(id);
  return steps;
}

/** The same chunk of other tokens behind a fork of the context each, the first uncounted. */
async function prefill(
  { runner, repeat, manifest }: Condition,
  context: SequenceId,
  { rows, depth }: StepShape,
): Promise<StepTime[]> {
  const steps: StepTime[] = [];
  for (let i = 0; i <= repeat; i++) {
    const id = runner.fork(context, depth);
    runner.splice(id, [{ start: depth, end: depth, count: rows }]);
    const tokens = Int32Array.from(text(rows, 1000 + i, manifest.shapes.vocab));
    const { time } = await timedStep(runner, id, tokens, 0);
    if (i > 0) steps.push(time);
    runner.release(id);
  }
  return steps;
}

async function timedStep(runner: Runner, sequence: SequenceId, tokens: Int32Array, draw: number) {
  const sample = { ...greedy, draw, generatedFrom: 0, top: 0 };
  const before = runner.profile();
  const begin = performance.now();
  const { outcomes, ms: addon } = await runner.step([{ sequence, tokens, sample }]);
  const whole = performance.now() - begin;
  const time: StepTime = { parts: between(before, runner.profile()), addon, whole };
  return { token: outcomes[0]!.token, time };
}

export const profileCommand = new Command("profile")
  .description("where the time of a decode step and of a 512-token prefill goes, part by part")
  .addOption(modelOption())
  .addOption(depthsOption().default([0]))
  .addOption(kvsOption())
  .addOption(activationsOption())
  .addOption(rowsOption("decode,pp512 d0"))
  .option("--threads <numbers>", "threads of the runner; default: as configured, and 1", numbers)
  .addOption(repeatOption(5))
  .option("--no-bandwidth", "do not measure the memory bandwidth")
  .action(profile);
