// Measures what a compaction costs, by size of the context, position of the cut, share removed and length of
// the summary is, for each way to reuse the cache. Rows go to bench/results/compaction.jsonl, one per condition and
// arm; plots and tables are made of them by docs/performance/.

import { loadavg } from "node:os";
import { join } from "node:path";
import { Command, Option } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf } from "../support/open-model.ts";
import {
  kvOption,
  modelOption,
  numbers,
  prefillCacheOptions,
  repeatOption,
  withPrefillCache,
} from "../support/options.ts";
import { median, Report, type Row } from "../support/results.ts";
import { sourceText } from "./conversation.ts";
import { arms, type Cell, defaultContexts, type GridName, gridNames, gridOf } from "./grid.ts";
import { InProcessServer, type Reading } from "./in-process-server.ts";
import { comparePeer, type PeerPrompt } from "./llama.ts";
import { type ChainReading, Measurer, type Splice } from "./measure.ts";

export const compactionParts = ["cells", "chains", "http"] as const;

export interface CompactionOptions {
  readonly model: readonly string[];
  readonly grid: GridName;
  readonly contexts?: readonly number[];
  readonly kv: string;
  readonly repeat: number;
  readonly prefillCache?: string;
  /** Absent: all of it. */
  readonly only?: (typeof compactionParts)[number];
  /** "llama.cpp": the same prompts to its server, with the weights of `gguf`. */
  readonly compare?: string;
  readonly gguf?: string;
  /** Stamps the rows, so that a report finds those of one run. */
  readonly run?: string;
}

/** [64, 4064) → 200 tokens of the first 16,000. */
const issueContext = 16_000;
const issueSplice: Splice = { start: 64, end: 4064, count: 200 };

const isWanted = (part: CompactionOptions["only"], { only }: CompactionOptions) =>
  only === undefined || only === part;

export async function compaction(options: CompactionOptions): Promise<void> {
  const report = new Report("compaction", thisMachine(), packageRoot());
  const run = options.run ?? new Date().toISOString();
  for (const name of options.model) await measureModel(report, name, run, options);
  report.print();
}

async function measureModel(report: Report, name: string, run: string, options: CompactionOptions) {
  const contexts = options.contexts ?? defaultContexts[options.grid];
  const longest = Math.max(...contexts);
  const { kv, repeat } = options;
  const { prefillCache } = options;
  // The conversation, one that computes all of it anew, and the version before that edit share little.
  const server = await InProcessServer.open({
    folder: folderOf(name),
    tokens: 2 * longest + 8192,
    kv,
    prefillCache,
  });
  const { manifest } = server;
  const head = { run, model: manifest.id, weights: manifest.weights.format, kv, grid: options.grid };
  const add = (row: Row) => report.add({ ...row, ...head, load: Number(loadavg()[0]!.toFixed(2)) });
  try {
    const measurer = new Measurer(server, sourceText(join(packageRoot(), "src")), longest);
    const base = await measurer.prefill();
    add({ kind: "prefill", context: longest, arm: "cold", ...numbersOf([base]) });
    const grid = gridOf(options.grid, contexts, repeat);
    const cells = isWanted("cells", options) ? grid.cells : [];
    const chains = isWanted("chains", options) ? grid.chains : [];
    for (const group of byCondition(cells)) await addCondition(measurer, group, add);
    for (const chain of chains) {
      const rounds: ChainReading[][] = [];
      for (let round = 0; round < repeat; round++) {
        const readings = await measurer.chain(chain);
        if (readings) rounds.push(readings);
      }
      for (const [place] of (rounds[0] ?? []).entries()) {
        const readings = rounds.map((round) => round[place]!);
        const { shifts } = readings[0]!;
        const { length, ...condition } = chain;
        const where = { ...condition, chain: length, compaction: place + 1, shifts };
        add({ kind: "chain", arm: "suffix", ...where, ...numbersOf(readings) });
      }
    }
    if (isWanted("http", options) && longest >= issueContext) {
      const readings = await measurer.splice(issueContext, issueSplice, Math.max(5, repeat));
      for (const [arm, all] of readings)
        add({ kind: "issue", context: issueContext, arm, via: "http", ...numbersOf(all) });
    }
    if (options.compare) await compare(measurer, cells, options, longest, add);
  } finally {
    await server.close();
  }
}

async function addCondition(measurer: Measurer, cells: readonly Cell[], add: (row: Row) => void) {
  const { context, place, share, summary } = cells[0]!;
  const measured = await measurer.condition(cells);
  if (!measured) return;
  const { removed, inserted, readings } = measured;
  for (const [arm, all] of readings) {
    const condition = { context, place, share, removed, summary, inserted };
    add({ kind: "cell", arm, ...condition, ...numbersOf(all) });
  }
}

/** The same prompts to a peer: those of the cells where we compute all that is behind the edit, and the issue's. */
async function compare(
  measurer: Measurer,
  cells: readonly Cell[],
  options: CompactionOptions,
  longest: number,
  add: (row: Row) => void,
) {
  const { gguf, repeat } = options;
  if (gguf === undefined) throw new Error("--compare wants --gguf, the file with the same weights.");
  const prompts: PeerPrompt[] = cells
    .filter(({ arm }) => arm === arms.prefix)
    .map((cell) => {
      const { context, place, share, summary } = cell;
      return { row: { kind: "cell", context, place, share, summary }, ...measurer.compacted(cell) };
    });
  if (isWanted("http", options) && longest >= issueContext) {
    const row = { kind: "issue", context: issueContext };
    prompts.push({ row, ...measurer.spliced(issueContext, issueSplice) });
  }
  await comparePeer({ gguf, prompts, repeat, context: longest, add });
}

/** Cells that differ in their arm only, measured in turn. */
export function byCondition(cells: readonly Cell[]): Cell[][] {
  const groups = new Map<string, Cell[]>();
  for (const cell of cells) {
    const { context, place, share, summary } = cell;
    const key = [context, place, share, summary].join(" ");
    groups.set(key, [...(groups.get(key) ?? []), cell]);
  }
  return [...groups.values()];
}

function numbersOf(readings: readonly Reading[]): Row {
  const times = readings.map(({ ms }) => ms);
  const { promptTokens, cacheUsage, linear, attention, pages } = readings[0]!;
  return {
    n: readings.length,
    ms: median(times),
    "ms least": Math.min(...times),
    "ms most": Math.max(...times),
    prompt: promptTokens,
    kept: cacheUsage.kept,
    relocated: cacheUsage.relocated,
    computed: cacheUsage.computed,
    "linear GMAC": linear,
    "attention GMAC": attention,
    pages,
  };
}

/** The options that `compaction` and `report` share. */
export function compactionOptions(command: Command): Command {
  command
    .addOption(modelOption())
    .addOption(
      new Option("--grid <name>", "which conditions are measured").choices(gridNames).default("headline"),
    )
    .option("--contexts <tokens>", "prompt lengths, instead of the grid's", numbers)
    .addOption(kvOption())
    .addOption(repeatOption(3));
  for (const option of prefillCacheOptions(
    "keep the prefill in this folder for the next run of the same model",
  )) {
    command.addOption(option);
  }
  return command
    .addOption(
      new Option("--only <part>", "the grid's conditions, its chains, or the row over HTTP").choices(
        compactionParts,
      ),
    )
    .addOption(new Option("--compare <peer>", "send the same prompts to a peer").choices(["llama.cpp"]))
    .option("--gguf <file>", "weights of the peer");
}

export const compactionCommand = compactionOptions(new Command("compaction"))
  .description(
    "time to first token after a compaction, for each way to reuse the cache, over a grid of conditions",
  )
  .action((options) => compaction(withPrefillCache(options)));
