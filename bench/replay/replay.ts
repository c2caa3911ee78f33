// Recorded agent runs played again on the real engine: the Pocket Context Agent against ReAct on the same moves.
// Every prompt is sent to the local session and computed; the recording says what the agent answered. A row per run
// and harness, and a line per turn in bench/results/replay-turns.jsonl. Generating is not measured: both say the same
// words, and the summaries' tokens are a column.

import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { Command } from "commander";
import type { ChatRequest, Message, Reuse } from "../../src/chat/chat.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { CountTokens } from "../../src/context/block.ts";
import { ChatCostModel, type CostModel, type PromptCost } from "../../src/harness/cost-model.ts";
import { readRecording } from "../../src/harness/recording.ts";
import { replayReport } from "../../src/harness/replay.ts";
import type { RunReport } from "../../src/harness/report.ts";
import { InProcessServer } from "../compaction/in-process-server.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf } from "../support/open-model.ts";
import { kvOption, modelOption } from "../support/options.ts";
import { Report } from "../support/results.ts";
import { record } from "./agent.ts";
import { scripts } from "./scripts.ts";

export interface ReplayOptions {
  readonly model: readonly string[];
  readonly kv: string;
  /** Moves of each recording. */
  readonly turns: number;
  /** Of one tool result, at most. */
  readonly resultTokens: number;
  /** Exported runs to play instead of the made ones. */
  readonly recordings?: readonly string[];
  /** Whether PCA is also played with reuse of the prefix alone. */
  readonly prefix?: boolean;
  readonly run?: string;
}

export interface Source {
  readonly name: string;
  readonly text: string;
}

export async function replayRuns(options: ReplayOptions): Promise<void> {
  const root = packageRoot();
  const run = options.run ?? new Date().toISOString();
  const report = new Report("replay", thisMachine(), root);
  const turns = new Report("replay-turns", thisMachine(), root);
  const sources = await sourcesOf(root, options);
  for (const name of options.model) {
    const server = await InProcessServer.open({ folder: folderOf(name), tokens: 3 * 32_768, kv: options.kv });
    const { id, weights } = server.manifest;
    const head = { run, model: id, weights: weights.format, kv: options.kv };
    try {
      for (const source of sources) {
        for (const arm of armsOf(options)) {
          const { costs, ...sums } = await play(server, source, arm);
          const load = Number(loadavg()[0]!.toFixed(2));
          report.add({ ...head, recording: source.name, harness: arm.name, ...sums, load });
          for (const cost of costs)
            turns.add({ ...head, recording: source.name, harness: arm.name, ...cost });
        }
      }
    } finally {
      await server.close();
    }
  }
  report.print();
}

async function sourcesOf(
  root: string,
  { recordings, turns, resultTokens }: ReplayOptions,
): Promise<Source[]> {
  if (recordings) return recordings.map((file) => ({ name: file, text: readFileSync(file, "utf8") }));
  const sources: Source[] = [];
  for (const script of scripts(root, turns, resultTokens))
    sources.push({ name: script.name, text: await record(script, root, resultTokens) });
  return sources;
}

export interface ReplayArm {
  readonly name: string;
  readonly harness: "pca" | "react";
  readonly reuse: Reuse;
}

function armsOf({ prefix }: ReplayOptions): ReplayArm[] {
  const pair: ReplayArm[] = [
    { name: "react", harness: "react", reuse: "suffix" },
    { name: "pca", harness: "pca", reuse: "suffix" },
  ];
  return prefix ? [...pair, { name: "pca prefix", harness: "pca", reuse: "prefix" }] : pair;
}

/** One recording under one harness: sums over the run, and what each turn cost. */
export async function play(
  server: InProcessServer,
  { name, text }: Source,
  { name: arm, harness, reuse }: ReplayArm,
) {
  const count = (message: Message) =>
    5 + server.countText(message.content) + server.countText(JSON.stringify(message.toolCalls ?? ""));
  const session = `${name} ${arm}`;
  const costModel = new WatchingCostModel(new ChatCostModel(server.chat, { reuse, repair: "none" }), count);
  server.takeWork();
  const report = await replayReport(readRecording(name, text), harness, { count, costModel, session });
  const { linear, attention } = server.takeWork();
  server.drop(session);
  const costs = report.turns.map((cost, index) => ({ ...cost, catalog: costModel.catalogs[index] ?? 0 }));
  const sums = { ...sumsOf(report), catalog: costModel.catalogs.reduce((sum, tokens) => sum + tokens, 0) };
  return { ...sums, "linear GMAC": linear, "attention GMAC": attention, costs };
}

function sumsOf({ turns, compactions, expands, usage, computed, prefixOnly }: RunReport) {
  const { agent, compressor } = usage;
  return {
    turns: turns.length,
    compactions: compactions.length,
    expands,
    "peak input": usage.peakInput,
    input: agent.promptTokens,
    computed,
    "of it compressor": compressor.computed,
    "prefix only": prefixOnly,
    "memory tokens": compactions.reduce((sum, { tokensAfter }) => sum + tokensAfter, 0),
    seconds: (agent.ms + compressor.ms) / 1000,
  };
}

/** Notes how long the catalog behind each of the agent's requests is. */
class WatchingCostModel implements CostModel {
  readonly catalogs: number[] = [];

  constructor(
    private readonly costModel: CostModel,
    private readonly count: CountTokens,
  ) {}

  cost(request: ChatRequest): PromptCost | Promise<PromptCost> {
    const last = request.messages.at(-1);
    const isCatalog = last?.content.startsWith("[context catalog]");
    if (!request.fork) this.catalogs.push(last && isCatalog ? this.count(last) : 0);
    return this.costModel.cost(request);
  }

  addAnswer(message: Message): void {
    this.costModel.addAnswer(message);
  }
}

export const replayCommand = new Command("replay")
  .description("recorded agent runs on the real engine: Pocket Context Agent against ReAct on the same moves")
  .addOption(modelOption())
  .addOption(kvOption())
  .option("--turns <n>", "moves of each generated recording", Number, 48)
  .option("--result-tokens <n>", "maximum tokens of one tool result", Number, 600)
  .option("--recordings <files...>", "exports of `pocket runs export`, instead of generated recordings")
  .option("--prefix", "also run PCA with prefix reuse only", false)
  .action(replayRuns);
