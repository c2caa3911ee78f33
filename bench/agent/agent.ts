// A real task with a real model in a window that it does not fit in: the agent reads twelve reports, compacts on the
// way and writes down twelve codes. A row per turn with its peak input, what suffix reuse computed, what prefix reuse
// alone would have, and the time; behind them the sums, how many codes are right, and whether the archive is whole.

import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command, Option } from "commander";
import { localCount } from "../../src/cli/agent-runtime.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import { exportRun } from "../../src/context/export.ts";
import { checkStore } from "../../src/context/integrity-check.ts";
import { Store } from "../../src/context/store.ts";
import type { AgentEvent } from "../../src/harness/events.ts";
import { addEvent, emptyReport, type RunReport } from "../../src/harness/report.ts";
import { beginRun, driveRun } from "../../src/harness/run.ts";
import { openToolset } from "../../src/harness/tools/toolset.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf, openBenchServer } from "../support/open-model.ts";
import { modelOption } from "../support/options.ts";
import { Report } from "../support/results.ts";
import { answerFile, reportsOf, rightOnes, type Report as Station, taskOf, writeReports } from "./reports.ts";

export interface AgentBenchOptions {
  readonly model: readonly string[];
  readonly harness: "pca" | "react";
  /** Tokens. */
  readonly window: number;
  /** Part of the window; 0: the agent is never asked to compact. */
  readonly nudge: number;
  readonly force: boolean;
  readonly temperature: number;
  /** Of the workspace, and of the sampling. */
  readonly seed: number;
  readonly reports: number;
  readonly turns: number;
  /** Keeps workspace, store and the exported run; else they go. */
  readonly keep?: string;
}

export async function agent(options: AgentBenchOptions): Promise<void> {
  for (const name of options.model) {
    const folder = options.keep ?? join(tmpdir(), `pocket-agent-${process.pid}`);
    const runFolder = join(folder, name);
    rmSync(runFolder, { recursive: true, force: true });
    mkdirSync(runFolder, { recursive: true });
    await runOne(name, runFolder, options);
    if (options.keep === undefined) rmSync(folder, { recursive: true });
  }
}

async function runOne(name: string, runFolder: string, options: AgentBenchOptions): Promise<void> {
  const { harness, window, nudge, force, temperature, seed, turns, reports } = options;
  const stations = reportsOf(seed, reports);
  const workspace = join(runFolder, "workspace");
  writeReports(workspace, stations);
  // The server's own proportion: the context, and the cells of what was compacted, which an expand wants back.
  const model = await openBenchServer(folderOf(name), 4 * window);
  const store = new Store(join(runFolder, "runs.sqlite"));
  const kit = openToolset({ workspace, window });
  try {
    const nudged = nudge > 0 && harness === "pca" ? { nudge, force } : {};
    const answer = { temperature, seed };
    const common = { harness, model: name, workspace, window, maxTurns: turns, answer };
    const order = { ...common, ...nudged, tools: ["read", "write"] };
    const run = beginRun(store, { ...order, id: "agent", task: taskOf(stations) }, localCount(model.backend));
    const table = new Table(name, harnessName(options));
    const signal = new AbortController().signal;
    const { outcome } = await driveRun(run, {
      chat: model.backend,
      tools: kit.tools,
      signal,
      onEvent: (event) => table.add(event),
    });
    writeFileSync(join(runFolder, "run.jsonl"), `${[...exportRun(store.database, "agent")].join("\n")}\n`);
    const written = join(workspace, answerFile);
    const text = existsSync(written) ? readFileSync(written, "utf8") : "";
    table.print();
    print(sums(table.report, { outcome, damages: checkStore(store.database).length, stations, text, table }));
  } finally {
    kit.close();
    store.close();
    await model.close();
  }
}

function harnessName({ harness, nudge, force }: AgentBenchOptions): string {
  if (harness === "react" || nudge === 0) return harness;
  return `${harness}+${force ? "force" : "nudge"}@${nudge}`;
}

/** A row per turn, written when the turn's calls have run. */
class Table {
  report: RunReport = emptyReport;
  readonly #rows: Report;
  #calls: string[] = [];
  #told: string[] = [];
  #shown = 0;
  /** Compactions that were refused, and results that were not given again. */
  refused = 0;

  constructor(
    private readonly model: string,
    private readonly harness: string,
  ) {
    this.#rows = new Report("agent", thisMachine(), packageRoot());
  }

  add(event: AgentEvent): void {
    this.report = addEvent(this.report, event);
    if (event.type === "turn-started") this.#calls = [];
    if (event.type === "tool-called") this.#calls.push(`${event.call.name} ${event.call.arguments}`);
    if (event.type === "tool-returned" && event.text.startsWith("Nothing was")) this.refused++;
    if (event.type === "block-compacted") {
      const { tokensBefore, tokensAfter, tag } = event;
      this.#told.push(`${tag}: ${tokensBefore} → ${tokensAfter} tokens`);
    }
    if (event.type === "block-expanded") this.#told.push(`expanded ${event.tag}: ${event.tokens} tokens`);
    if (event.type === "block-appended" && event.kind === "exchange") this.#row();
  }

  print(): void {
    this.#rows.print();
  }

  #row(): void {
    const { turns, usage, compression } = this.report;
    const turn = turns.at(-1);
    // An answer that came in a call is an exchange of its own, and no turn.
    if (!turn || turn.turn === this.#shown) return;
    this.#shown = turn.turn;
    const { input, kept, relocated, computed, prefixOnly, output, ms } = turn;
    const what = (this.#calls.join("; ") || "answer").replace(/[|\s]+/g, " ");
    const compressor = this.#told.some((line) => line.startsWith("ctx-")) ? compression.computed : 0;
    this.#rows.add({
      model: this.model,
      harness: this.harness,
      turn: turn.turn,
      does: what.length > 70 ? `${what.slice(0, 69)}…` : what,
      input,
      peak: usage.peakInput,
      kept,
      relocated,
      computed,
      "prefix-only": prefixOnly,
      output,
      s: ms / 1000,
      "compressor computed": compressor,
      comes: this.#told.join("; "),
    });
    this.#told = [];
    this.#calls = [];
  }
}

interface Ending {
  readonly outcome: string;
  readonly damages: number;
  readonly stations: readonly Station[];
  /** What the agent wrote. */
  readonly text: string;
  readonly table: Table;
}

function sums(report: RunReport, { outcome, damages, stations, text, table }: Ending): string[] {
  const { turns, compactions, expands, usage, computed, prefixOnly } = report;
  const right = rightOnes(stations, text);
  const seconds = (usage.agent.ms + usage.compressor.ms) / 1000;
  return [
    `outcome ${outcome}; ${turns.length} turns; ${compactions.length} compactions, ${table.refused} refused; ${expands} expands`,
    `peak input ${usage.peakInput} tokens; all prompts together ${usage.agent.promptTokens + usage.compressor.promptTokens}`,
    `computed ${computed} prompt tokens; prefix reuse alone ${prefixOnly}; of it by the compressor ${usage.compressor.computed}`,
    `generated ${usage.agent.completionTokens + usage.compressor.completionTokens} tokens; ${seconds.toFixed(0)} s in answers`,
    `right codes ${right.length} of ${stations.length}: ${right.join(", ")}`,
    `damages in the store: ${damages}`,
  ];
}

function print(lines: readonly string[]): void {
  process.stdout.write(`\n${lines.map((line) => `- ${line}`).join("\n")}\n`);
}

export const agentCommand = new Command("agent")
  .description("a task larger than the context window, by an agent that compacts: one row per turn")
  .addOption(modelOption())
  .addOption(new Option("--harness <name>", "pca or react").choices(["pca", "react"]).default("pca"))
  .option("--window <tokens>", "context window of the run", Number, 8192)
  .option(
    "--nudge <share>",
    "share of the window from which the agent is asked to compact; 0: never",
    Number,
    0.6,
  )
  .option("--no-force", "ask only")
  .option("--temperature <number>", "sampling temperature", Number, 0.3)
  .option("--seed <n>", "seed of the reports and of sampling", Number, 7)
  .option("--reports <n>", "number of reports, up to 12; half of those fit the window", Number, 12)
  .option("--turns <n>", "maximum turns", Number, 60)
  .option("--keep <folder>", "keep the workspace, the store and the exported run in this folder")
  .action(agent);
