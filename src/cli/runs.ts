// pocket runs: what is in the store of agent runs, and what came of each. Reads; the only thing written is an
// export's own output.
import { readFileSync } from "node:fs";
import type { Config } from "../config/config.ts";
import { formatTokens } from "../context/catalog.ts";
import { exportRun } from "../context/export.ts";
import { checkStore } from "../context/integrity-check.ts";
import type { RunInfo, Store } from "../context/store.ts";
import { PocketError, pocketError } from "../errors.ts";
import { reportToJson } from "../harness/event-json.ts";
import { readRecording } from "../harness/recording.ts";
import { type ReplayCosts, replay } from "../harness/replay.ts";
import { readReport } from "../harness/report.ts";
import { counterOf, openStore } from "./agent-runtime.ts";
import { plain, seconds } from "./run-view.ts";

export type Print = (line: string) => void;

export function listRuns(config: Config, json: boolean, print: Print): void {
  inStore(config, (store) => {
    const runs = store.list();
    if (json) return print(JSON.stringify(runs));
    if (runs.length === 0) print(`no runs yet in ${store.file}`);
    for (const info of runs) {
      const { outcome, turns, compactions } = readReport(store.database, info.id);
      const when = new Date(info.createdMs).toISOString().slice(0, 16).replace("T", " ");
      print(
        `${info.id}  ${when}  ${harnessOf(info)}  ${outcome}, ${turns.length} turns, ${compactions.length} compactions  ${plain(info.title)}`,
      );
    }
  });
}

export function showRun(id: string, config: Config, json: boolean, print: Print): void {
  inStore(config, (store) => {
    const info = store.list().find((run) => run.id === id);
    if (!info) throw pocketError("RUN_NOT_FOUND", id, store.file);
    const report = readReport(store.database, id);
    if (json) return print(JSON.stringify({ ...info, ...reportToJson(report) }));
    const { turns, compactions, usage, computed, prefixOnly, outcome, answer, why } = report;
    print(`${id} ${harnessOf(info)}: ${plain(info.title)}`);
    print("");
    print("turn    input     kept relocated computed prefix-only   output    time");
    const row = (numbers: readonly number[], ms: number) =>
      numbers.map((number) => formatTokens(number).padStart(9)).join("") + seconds(ms).padStart(9);
    for (const { turn, input, kept, relocated, computed, prefixOnly, output, ms } of turns)
      print(`${String(turn).padStart(4)}${row([input, kept, relocated, computed, prefixOnly, output], ms)}`);
    for (const { tag, replaced, tokensBefore, tokensAfter, computed, ms } of compactions)
      print(
        `${tag} of ${replaced.join(", ")}: −${formatTokens(tokensBefore - tokensAfter)} tokens, recomputed ${formatTokens(computed)}, ${seconds(ms)}`,
      );
    print("");
    print(
      `peak input ${formatTokens(usage.peakInput)} tokens; computed ${formatTokens(computed)} prompt tokens, prefix reuse alone ${formatTokens(prefixOnly)}`,
    );
    print(answer === undefined ? `${outcome}${why ? `: ${why}` : ""}` : `${outcome}: ${plain(answer)}`);
  });
}

export function exportOne(id: string, config: Config, print: Print): void {
  inStore(config, (store) => {
    for (const line of exportRun(store.database, id)) print(line);
  });
}

/** Sets the exit code where something is wrong. */
export function checkRuns(id: string | undefined, config: Config, print: Print): void {
  inStore(config, (store) => {
    if (id !== undefined && !store.list().some((run) => run.id === id))
      throw pocketError("RUN_NOT_FOUND", id, store.file);
    const damages = checkStore(store.database, id);
    for (const { run, what } of damages) print(run === undefined ? what : `${run}: ${what}`);
    if (damages.length === 0)
      print(`nothing is wrong with ${id ?? `the ${store.list().length} runs`} in ${store.file}`);
    else process.exitCode = 1;
  });
}

/** Both harnesses unless one is named. Costs are counted at three characters a token. */
export async function replayFile(
  file: string,
  harness: "pca" | "react" | undefined,
  json: boolean,
  print: Print,
): Promise<void> {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    throw new PocketError("BAD_CONFIG", `${file} cannot be read: ${(cause as Error).message}.`);
  }
  const recording = readRecording(file, text);
  const count = counterOf((content) => Math.ceil(content.length / 3));
  const rows: ReplayCosts[] = [];
  for (const name of harness ? [harness] : (["react", "pca"] as const))
    rows.push(await replay(recording, name, count));
  if (json) return print(JSON.stringify(rows));
  print("harness  turns  compactions  peak input  computed (suffix)  computed (prefix only)");
  for (const { harness, turns, compactions, peakInput, computed, prefixOnly } of rows) {
    const numbers = [
      formatTokens(turns).padStart(5),
      formatTokens(compactions).padStart(11),
      formatTokens(peakInput).padStart(10),
      formatTokens(computed).padStart(17),
      formatTokens(prefixOnly).padStart(22),
    ];
    print(`${harness.padEnd(7)}  ${numbers.join("  ")}`);
  }
}

function inStore(config: Config, use: (store: Store) => void): void {
  const store = openStore(config);
  try {
    use(store);
  } finally {
    store.close();
  }
}

/** Another program's runs may be in the store too. */
function harnessOf({ settings }: RunInfo): string {
  const { harness, nudge } = (settings ?? {}) as { readonly harness?: unknown; readonly nudge?: unknown };
  return `${typeof harness === "string" ? harness : "unknown"}${nudge === undefined ? "" : "+nudge"}`;
}
