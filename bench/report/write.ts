// npm run bench -- report: the compaction grid and the replays, measured one after the other, and a folder made of
// their rows, docs/performance/ by default: README.md with the tables, and the figures. --only-write makes it of the latest
// rows without measuring. What a number means is said here once, beside its table.
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TopLevelSpec } from "vega-lite";
import { packageRoot } from "../../src/cli/package-root.ts";
import { type CompactionOptions, compaction } from "../compaction/compaction.ts";
import { replayRuns } from "../replay/replay.ts";
import { againstIdeal, chains, computed, firstToken, isUsual } from "./figures.ts";
import { replay } from "./replay-figures.ts";
import { latestRows, number, type ResultRow } from "./rows.ts";
import { svgOf } from "./svg.ts";
import { armTable, cellTable, chainTable, issueTable, replayTable } from "./tables.ts";

export interface WriteOptions extends CompactionOptions {
  readonly turns: number;
  readonly resultTokens: number;
  readonly onlyWrite: boolean;
  /** Folder that the report is written to; its tables and figures of before are gone then. */
  readonly to: string;
}

export async function writeReport(options: WriteOptions): Promise<void> {
  if (!options.onlyWrite) {
    const run = new Date().toISOString();
    await compaction({ ...options, run });
    await replayRuns({ ...options, run });
  }
  const root = packageRoot();
  const results = join(root, "bench", "results");
  const rows = {
    cells: latestRows(results, "compaction"),
    replays: latestRows(results, "replay"),
    turns: latestRows(results, "replay-turns"),
  };
  if (rows.cells.length + rows.replays.length === 0)
    throw new Error("There are no rows to report; measure first.");
  const files = await filesOf(rows);
  const folder = options.to;
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) if (/\.(svg|md)$/.test(name)) rmSync(join(folder, name));
  for (const [name, content] of files) writeFileSync(join(folder, name), content);
  process.stderr.write(`${folder}: ${[...files.keys()].join(", ")}\n`);
}

export interface ReportRows {
  readonly cells: readonly ResultRow[];
  readonly replays: readonly ResultRow[];
  readonly turns: readonly ResultRow[];
}

/** README.md and the figures, by name; sections without rows are left out. */
export async function filesOf({ cells, replays, turns }: ReportRows): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  const figure = async (name: string, title: string, description: TopLevelSpec) => {
    files.set(`${name}.svg`, await svgOf(description));
    return `![${title}](${name}.svg)`;
  };
  const parts = ["# Compactions and agent runs, measured", ...introduction];
  if (cells.length > 0) parts.push(...conditions("Compactions", cells));
  if (cells.some(({ kind }) => kind === "issue"))
    parts.push("## 16,000 tokens, [64, 4064) → 200, over HTTP", ...issueWords, issueTable(cells));
  if (cells.some(isUsual)) {
    parts.push("## Half of the conversation, at its front, to a summary of 256 tokens", ...armWords);
    parts.push(await figure("first-token", "Time to first token against context", firstToken(cells)));
    parts.push(await figure("computed", "Tokens computed against context", computed(cells)), armTable(cells));
  }
  if (cells.some((row) => row.arm === "ideal")) {
    parts.push("## Other places, shares and summaries", ...cellWords);
    parts.push(
      await figure("ideal", "Each compaction beside its ideal", againstIdeal(cells)),
      cellTable(cells),
    );
  }
  if (cells.some(({ kind }) => kind === "chain")) {
    parts.push("## Chains", ...chainWords);
    parts.push(await figure("chains", "Compactions one after the other", chains(cells)), chainTable(cells));
  }
  if (replays.length > 0) {
    parts.push("## Agent runs played again", ...conditions("Replays", replays), ...replayWords);
    parts.push(await figure("replay-input", "Input by turn", replay(turns, "input")));
    parts.push(await figure("replay-computed", "Computed up to each turn", replay(turns, "computed")));
    parts.push(await figure("replay-time", "Time up to each turn", replay(turns, "seconds")));
    parts.push(replayTable(replays), verdict(replays));
  }
  files.set("README.md", `${parts.join("\n\n")}\n`);
  return files;
}

const introduction = [
  "Made by `npm run bench -- report` out of its JSON lines; not to be edited. What is measured is described in `bench/README.md`.",
];

/** What the rows were measured on. */
function conditions(what: string, rows: readonly ResultRow[]): string[] {
  const { machine, kv } = rows[0]!;
  const grids = [...new Set(rows.flatMap(({ grid }) => (grid ? [`\`${grid}\``] : [])))];
  const runs = [...new Set(rows.map(({ run }) => run))].toSorted();
  const begun = runs.map((run) => run.slice(0, 16).replace("T", " ")).join(" and ");
  const models = [...new Set(rows.map(({ model, weights }) => `${model} \`${weights}\``))].join(", ");
  const minutes = runs.reduce((sum, run) => {
    const ends = rows.filter((row) => row.run === run).map(({ at }) => Date.parse(at));
    return sum + (Math.max(...ends) - Date.parse(run)) / 60_000;
  }, 0);
  const loads = rows.map(({ load }) => load ?? Number.NaN);
  const load = `${Math.min(...loads).toFixed(1)} to ${Math.max(...loads).toFixed(1)}`;
  const noise =
    Math.max(...loads) > machine.cores + 1
      ? " Other programs ran on the machine at the same time: times are longer than they need be and vary, their ratios within a condition hold better, counts are exact."
      : "";
  return [
    `${what}: ${models}, KV ${kv}${grids.length > 0 ? `, grid ${grids.join(" and ")}` : ""}; ${machine.cpu}, ${machine.cores} cores, ${machine.features.join(" ")}, ${machine.memoryGiB} GiB; commit ${machine.commit}, begun ${begun} UTC, ${minutes.toFixed(0)} minutes in all; load average ${load}.${noise}`,
  ];
}

const issueWords = [
  "`ideal` appends 200 tokens to the first 12,000; `in place, nothing behind` computes them behind the first 64 and has no survivors to look at them.",
];

const armWords = [
  "From request to first token, in process; medians. `computed` is what ran through the model, counted by the bill; multiply-adds (10⁹, linear layers with LM head, then attention) are counted from the steps; pages are those lent for the request. `ideal` appends as many tokens as suffix reuse computes to a context as long as the rest. `suffix` and `prefix` keep what they keep of a resident session, `none` computes everything, `forget` everything behind the edit.",
];

const cellWords = [
  "`removed` is the share of exchanges and the tokens of them. At the end means in front of the latest exchange, which is protected. Conditions whose summary would not be shorter than what it replaces are left out.",
];

const chainWords = [
  "One session is compacted again and again; every compaction turns the survivors by one more shift. `prefix reuse in all` is the bill's split of the same requests: everything behind the edit.",
];

const replayWords = [
  "The moves, the tool results and the summaries come from recordings; every prompt is computed by the engine for one token, and what the recording says stands in the next prompt (so an agent's own words count as computed under both harnesses). No repair. `peak input` is the agent's largest prompt; `catalog` is the list that trails each request of the Pocket Context Agent and is never stored, `compressor` the instruction of each summary's request, answered on a fork. `prefix reuse` is what the same requests would compute if only the common prefix stayed.",
];

/** What the totals say, from the rows. */
export function verdict(replays: readonly ResultRow[]): string {
  const sum = (harness: string, key: string) =>
    replays.filter((row) => row.harness === harness).reduce((total, row) => total + number(row, key), 0);
  const ratio = (key: string, other = key) => (sum("pca", key) / sum("react", other)).toFixed(2);
  const extra = sum("pca", "computed") - sum("react", "computed");
  const share = (key: string) => `${Math.round((100 * sum("pca", key)) / extra)} %`;
  const work = (harness: string) => sum(harness, "linear GMAC") + sum(harness, "attention GMAC");
  return [
    `Over these runs the Pocket Context Agent computes ${ratio("computed")} times the prompt tokens of ReAct, with ${(work("pca") / work("react")).toFixed(2)} times the multiply-adds in ${ratio("seconds")} times the time; its prompts added up are ${ratio("input")} times as long. With prefix reuse alone it would compute ${ratio("prefix only")} times ReAct's tokens.`,
    `ReAct appends only, so it computes every token once, and no policy that adds a token can compute fewer. Of what the Pocket Context Agent computes beyond it, the catalogs are ${share("catalog")} and the compressor's requests ${share("of it compressor")}; the rest are its two tools, its own calls, memories and copies. The catalog trails, so each request computes it anew: its price is its own length, every turn. What it buys is the window: the peak is what has to fit, and attention is paid by length.`,
  ].join("\n\n");
}
