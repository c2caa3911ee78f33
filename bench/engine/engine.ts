// Raw speed, no server in between: prefill at depth, decode at depth, a cold prompt, eight streams in one step.
// With --compare, peers on the same file of weights take turns with ours, row by row: llama.cpp with flash attention
// on and off, ONNX Runtime GenAI. `times best peer` holds ours against the best of them, `ours over it` against each.
// Decode is also given as a share of what the memory bandwidth would allow, as it is measured in front of the row and
// behind it: a host that lends its memory to others too may give half of it a minute later.

import { join } from "node:path";
import { Command, Option } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import { Config } from "../../src/config/config.ts";
import type { KvType } from "../../src/engine/addon.ts";
import { type BandwidthReader, bandwidthReader, withBandwidth } from "../kernels/kernels.ts";
import { openGenai } from "../peers/genai.ts";
import { type LlamaOptions, llamaBench, openLlama } from "../peers/llama.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf } from "../support/open-model.ts";
import {
  activationsOption,
  depthsOption,
  ggufOption,
  kvsOption,
  modelOption,
  repeatOption,
  rowsOption,
} from "../support/options.ts";
import { Report } from "../support/results.ts";
import { median, spread } from "../support/samples.ts";
import { sourceFile, weightsRead } from "../support/weights-read.ts";
import { alternate, type PeerEngine } from "./peer-engine.ts";
import { openPocket, type PocketEngine } from "./pocket.ts";
import { type EngineRow, engineRows, streams, text } from "./rows.ts";

export interface EngineBenchOptions {
  readonly model: readonly string[];
  /** Of prefill and decode rows alike; absent: those of the README's tables. */
  readonly depths?: readonly number[];
  readonly kv: readonly string[];
  readonly activations: string;
  readonly compare: readonly string[];
  readonly gguf: readonly string[];
  readonly rows: readonly string[];
  readonly repeat: number;
  readonly quick?: boolean;
  readonly bandwidth: boolean;
}

/** What is the same in all rows of a table's part. */
interface Condition {
  readonly report: Report;
  readonly labels: { readonly model: string; readonly weights: string; readonly kv: string };
  readonly rows: readonly EngineRow[];
  readonly vocab: number;
  readonly repeat: number;
  /** Bytes of weights and cells that a decode step at a depth reads at least. */
  readonly bytesRead: (depth: number) => number;
  /** Undefined: the memory is not measured. */
  readonly bandwidth: BandwidthReader | undefined;
}

export async function engine(options: EngineBenchOptions): Promise<void> {
  const report = new Report("engine", thisMachine(), packageRoot());
  const bandwidth = options.bandwidth ? bandwidthReader() : undefined;
  for (const name of options.model) {
    for (const kvType of options.kv) await measureModel(report, name, kvType as KvType, options, bandwidth);
  }
  report.print();
}

async function measureModel(
  report: Report,
  name: string,
  kvType: KvType,
  options: EngineBenchOptions,
  bandwidth: BandwidthReader | undefined,
): Promise<void> {
  const folder = folderOf(name);
  const depths = depthsOf(options);
  const tokens = Math.max(...depths.prefillDepths, ...depths.decodeDepths) + 512 * (streams + 2);
  const activations = options.activations as "int8" | "f32";
  const ours = await openPocket({ folder, tokens, kvType, activations });
  const { manifest } = ours;
  const engines: PeerEngine[] = [ours];
  try {
    const rows = engineRows({ ...depths, words: options.rows, context: manifest.shapes.context });
    const gguf = options.compare.length ? await sourceFile(manifest, ggufFolders(options.gguf)) : undefined;
    const weightBytes = gguf ? weightsRead(gguf) : storedBytes(ours);
    const condition: Condition = {
      report,
      labels: {
        model: manifest.id,
        weights: `${manifest.weights.format}, activations ${activations}`,
        kv: kvType,
      },
      rows,
      vocab: manifest.shapes.vocab,
      repeat: options.quick ? Math.min(options.repeat, 3) : options.repeat,
      bytesRead: (depth) => weightBytes + depth * ours.cellBytes,
      bandwidth,
    };
    const llamas = gguf && options.compare.includes("llama.cpp") ? llamasOf(gguf, kvType, tokens) : [];
    const aside = rows.some(({ depth, kind }) => depth === 0 && (kind === "decode" || kind === "prefill"))
      ? await measureAside(condition, llamas)
      : new Map<string, number>();
    for (const llama of llamas) engines.push(await openLlama(llama));
    if (gguf && options.compare.includes("genai")) {
      const { sha256 } = manifest.source;
      engines.push(await openGenai({ gguf, sha256, threads: threads(), context: tokens }));
    }
    await measureRows(condition, engines, aside);
  } finally {
    for (const engine of engines) await engine.close();
  }
}

/** Measures every row with the engines alternating; `aside`: the result of a peer's own benchmark, tokens per second. */
async function measureRows(
  condition: Condition,
  engines: readonly PeerEngine[],
  aside: ReadonlyMap<string, number>,
): Promise<void> {
  const { report, rows, vocab, repeat, bandwidth } = condition;
  const deepest = Math.max(0, ...rows.map(({ kind, count, depth }) => (kind === "cold" ? count : depth)));
  const prompt = text(Math.max(1, deepest), 0, vocab);
  const cold: number[][] = [];
  for (const engine of engines) cold.push([await engine.resident(prompt)]);
  let salt = 1;
  for (const row of rows) {
    const able = engines.filter((engine) => row.kind !== "together" || isPocket(engine));
    const measure = (engine: PeerEngine) => {
      if (row.kind === "prefill") {
        return engine.prefill(prompt.slice(0, row.depth), text(row.count, 1000 + salt++, vocab));
      }
      // A server wants a prompt: at depth 0 of one token.
      const context = prompt.slice(0, Math.max(1, row.depth));
      if (row.kind === "decode") return engine.decode(context, row.count);
      return (engine as PocketEngine).together(context, row.count, streams);
    };
    const turns = () =>
      alternate(
        able.map((engine) => () => measure(engine)),
        repeat,
      );
    const { result: seconds, bytesPerSecond } = await withBandwidth(
      row.kind === "decode" ? bandwidth : undefined,
      async () => (row.kind === "cold" ? cold : turns()),
    );
    addRows(condition, row, able, { seconds, aside: aside.get(row.name), bytesPerSecond });
  }
  for (const engine of engines) {
    if (!engine.peakBytes) continue;
    const labels = labelsOf(condition, engine);
    const MiB = engine.peakBytes() / 2 ** 20;
    report.add({ ...labels, row: "peak of all rows", who: engine.name, MiB });
  }
}

function labelsOf({ labels }: Condition, { kv, weights }: PeerEngine) {
  return { ...labels, kv, ...(weights && { weights }) };
}

interface Readings {
  /** One list per engine. */
  readonly seconds: readonly (readonly number[])[];
  /** What a peer reached by its own bench, tokens a second. */
  readonly aside: number | undefined;
  /** That the memory gave around them; not a number where it was not measured. */
  readonly bytesPerSecond: number;
}

function addRows(
  condition: Condition,
  row: EngineRow,
  engines: readonly PeerEngine[],
  { seconds, aside, bytesPerSecond }: Readings,
): void {
  const { report, bytesRead } = condition;
  const tokens = row.kind === "together" ? row.count * streams : row.count;
  const rates = seconds.map((each) => each.map((one) => tokens / one));
  const theirs = Math.max(...rates.slice(1).map(median), aside ?? -Infinity);
  for (const [index, engine] of engines.entries()) {
    const rate = median(rates[index]!);
    // The limit counts the source file's bytes; who reads other weights has another.
    const isOfFile = engine.weights === undefined;
    const least = isOfFile ? bytesRead(row.depth) / bytesPerSecond : Number.NaN;
    report.add({
      ...labelsOf(condition, engine),
      row: row.name,
      who: engine.name,
      "tokens/s": rate,
      ...spread(rates[index]!),
      ...(Number.isFinite(least) && {
        "of limit": `${(rate * least * 100).toFixed(0)} %`,
        "GB/s": bytesPerSecond / 1e9,
      }),
      ...(index === 0 && Number.isFinite(theirs) && { "times best peer": rate / theirs }),
      ...(index > 0 && { "ours over it": median(rates[0]!) / rate }),
    });
  }
}

/** By llama-bench, before anything else is open: its own way of measuring must not be better than ours of it. */
async function measureAside(
  { report, labels, rows, repeat }: Condition,
  peers: readonly LlamaOptions[],
): Promise<Map<string, number>> {
  const best = new Map<string, number>();
  for (const peer of peers) {
    const measured = await llamaBench(peer, { prefill: 512, decode: 32, repetitions: repeat });
    for (const { row, samples } of measured) {
      const name = `${row} @ d0`;
      if (!rows.some((each) => each.name === name)) continue;
      const rate = median(samples);
      best.set(name, Math.max(rate, best.get(name) ?? 0));
      const who = `llama-bench fa=${peer.flashAttention ? "on" : "off"}`;
      report.add({ ...labels, kv: peer.kvType, row: name, who, "tokens/s": rate, ...spread(samples) });
    }
  }
  return best;
}

/** Quantised values want flash attention there. Types that it does not have in common with ours have no peer. */
function llamasOf(gguf: string, kvType: KvType, context: number): LlamaOptions[] {
  const common = { gguf, threads: threads(), context };
  const on = (type: LlamaOptions["kvType"]) => ({ ...common, kvType: type, flashAttention: true });
  if (kvType === "int8") return [on("q8_0")];
  return kvType === "f16" ? [on("f16"), { ...on("f16"), flashAttention: false }] : [];
}

function depthsOf({ depths, quick }: EngineBenchOptions) {
  if (depths) return { prefillDepths: depths, decodeDepths: depths };
  if (quick) return { prefillDepths: [0, 2048], decodeDepths: [0, 2048] };
  return { prefillDepths: [0, 8192, 16_384], decodeDepths: [0, 2048, 8192, 16_384] };
}

export function ggufFolders(named: readonly string[]): string[] {
  const models = Config.read({ flags: {}, environment: process.env }).text("models.dir");
  return [...named, join(models, "downloads")];
}

export function threads(): number {
  return Config.read({ flags: {}, environment: process.env }).number("threads");
}

/** Without the source file: what the model folder stores, which is more. */
function storedBytes({ manifest }: PocketEngine): number {
  const isTied = !manifest.weights.tensors.some(({ name }) => name === "output.weight");
  const read = manifest.weights.tensors.filter(({ name }) => isTied || name !== "token_embd.weight");
  return read.reduce((sum, { bytes }) => sum + bytes, 0);
}

function isPocket(engine: PeerEngine): engine is PocketEngine {
  return "together" in engine;
}

export const engineCommand = new Command("engine")
  .description(
    "tokens per second of the runner: prefill and decode at depth, a cold prompt, concurrent streams",
  )
  .addOption(modelOption())
  .addOption(depthsOption())
  .addOption(kvsOption())
  .addOption(activationsOption())
  .addOption(
    new Option("--compare <peers...>", "alternate with peers on the same weights; scripts/peers builds them")
      .choices(["llama.cpp", "genai"])
      .default([]),
  )
  .addOption(ggufOption())
  .addOption(rowsOption("pp512,tg32 d0"))
  .addOption(repeatOption(5))
  .option("--quick", "depths 0 and 2,048, three repetitions")
  .option("--no-bandwidth", "do not measure the memory bandwidth")
  .action(engine);
