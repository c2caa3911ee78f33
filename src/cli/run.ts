// pocket run: runs one task with an agent and shows its progress. pocket runs resume continues an interrupted run.
// The wiring of store, chat, tools and loop; Ctrl-C ends the run so that it can be resumed.
import { resolve } from "node:path";
import type { Config } from "../config/config.ts";
import type { Run, Store } from "../context/store.ts";
import { PocketError, pocketError } from "../errors.ts";
import { eventToJson, reportToJson } from "../harness/event-json.ts";
import { harnessNames } from "../harness/policies/registry.ts";
import { addEvent, type RunReport, readReport } from "../harness/report.ts";
import { beginRun, driveRun, resumeRun } from "../harness/run.ts";
import { type RunOptions, runOptionsOf } from "../harness/run-options.ts";
import { openMcpServers, parseMcpServer } from "../harness/tools/mcp.ts";
import { openToolset, resultCharacters } from "../harness/tools/toolset.ts";
import { type AgentRuntime, openLocalRuntime, openRemoteRuntime, openStore } from "./agent-runtime.ts";
import { RunView } from "./run-view.ts";

export interface RunFlags {
  readonly harness: string;
  readonly workspace?: string;
  readonly corpus?: string;
  readonly window?: string;
  readonly maxTurns: string;
  readonly baseUrl?: string;
  /** Part of the window; true: the usual one. */
  readonly nudge?: string | true;
  readonly force?: boolean;
  /** Names of the tools it is offered. */
  readonly tools?: readonly string[];
  /** MCP servers, name=command or name=URL. */
  readonly mcp?: readonly string[];
  readonly id?: string;
  readonly json?: boolean;
}

/** Receives the output: standard output, or a test. */
export interface Screen {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export interface RunOutput {
  readonly screen: Screen;
  /** Default: the model of the run options, in process or over HTTP. */
  readonly openRuntime?: (
    options: Pick<RunOptions, "model" | "baseUrl">,
    config: Config,
  ) => Promise<AgentRuntime>;
}

const usualNudge = 0.6;

export async function run(task: string, flags: RunFlags, config: Config, output: RunOutput): Promise<void> {
  const model = config.text("model");
  const { baseUrl } = flags;
  const given = optionsFrom(flags, config);
  await withRuntime({ model, ...(baseUrl && { baseUrl }) }, flags, config, output, (store, runtime) => {
    const window = windowOf(flags.window, runtime);
    const options = { ...given, window, task, ...(flags.id && { id: flags.id }) };
    return beginRun(store, options, runtime.count);
  });
}

export async function resume(
  id: string,
  task: string | undefined,
  flags: Pick<RunFlags, "json">,
  config: Config,
  output: RunOutput,
): Promise<void> {
  const store = openStore(config);
  let options: RunOptions;
  try {
    const info = store.list().find((run) => run.id === id);
    if (!info) throw pocketError("RUN_NOT_FOUND", id, store.file);
    options = runOptionsOf(info);
  } finally {
    store.close();
  }
  await withRuntime(options, flags, config, output, (store, runtime) =>
    resumeRun(store, id, runtime.count, task),
  );
}

/** Opens what the run needs, runs it, closes in reverse order. */
async function withRuntime(
  options: Pick<RunOptions, "model" | "baseUrl">,
  { json = false }: Pick<RunFlags, "json">,
  config: Config,
  { screen, openRuntime = openRuntimeFor }: RunOutput,
  make: (store: Store, runtime: AgentRuntime) => Run,
): Promise<void> {
  const store = openStore(config);
  try {
    const runtime = await openRuntime(options, config);
    try {
      const run = make(store, runtime);
      const report = readReport(store.database, run.info.id);
      await drive(run, runtime, { json, screen, report });
    } finally {
      await runtime.close();
    }
  } finally {
    store.close();
  }
}

interface Watch {
  readonly json: boolean;
  readonly screen: Screen;
  /** Of what the run has done before. */
  readonly report: RunReport;
}

async function drive(run: Run, { chat }: AgentRuntime, watch: Watch): Promise<void> {
  const { json, screen } = watch;
  const { id } = run.info;
  const { window, workspace, corpus, mcp = [] } = runOptionsOf(run.info);
  const toolset = openToolset({ workspace, corpus, window });
  const servers = await openMcpServers(mcp, resultCharacters(window)).catch((cause) => {
    toolset.close();
    throw cause;
  });
  const tools = [...toolset.tools, ...servers.tools];
  for (const warning of toolset.warnings) process.stderr.write(`pocket: ${warning}\n`);
  const view = new RunView(screen, window, watch.report);
  let { report } = watch;
  const print = (value: object) => screen.write(`${JSON.stringify(value)}\n`);
  if (json) print({ type: "run-started", id, ...runOptionsOf(run.info) });
  else screen.write(`run ${id}\n`);
  const controller = new AbortController();
  const onSignal = () => controller.abort(pocketError("RUN_INTERRUPTED", id));
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, onSignal);
  try {
    const onEvent: typeof view.show = (event) => {
      report = addEvent(report, event);
      return json ? void print(eventToJson(event)) : view.show(event);
    };
    await driveRun(run, { chat, tools, signal: controller.signal, onEvent });
    if (json) print({ type: "report", id, ...reportToJson(report) });
    else screen.write(`\npocket runs show ${id}\n`);
  } catch (cause) {
    if (controller.signal.aborted) process.exitCode = 130;
    if (!json) screen.write(`pocket runs resume ${id}\n`);
    if (!controller.signal.aborted) throw cause;
  } finally {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.off(signal, onSignal);
    await servers.close();
    toolset.close();
  }
}

function openRuntimeFor({ model, baseUrl }: Pick<RunOptions, "model" | "baseUrl">, config: Config) {
  if (baseUrl !== undefined) return openRemoteRuntime(model, baseUrl);
  return openLocalRuntime(model, config);
}

function optionsFrom(flags: RunFlags, config: Config): Omit<RunOptions, "window"> {
  const { workspace = ".", corpus, baseUrl, harness, mcp } = flags;
  const name = harnessNames.find((known) => known === harness);
  if (!name) throw bad(`--harness is ${harnessNames.join(" or ")}, not '${harness}'`);
  const maxTurns = Number(flags.maxTurns);
  if (!Number.isInteger(maxTurns) || maxTurns < 1)
    throw bad(`--max-turns is a whole number from 1, not '${flags.maxTurns}'`);
  const nudge =
    flags.nudge === true ? usualNudge : flags.nudge === undefined ? undefined : Number(flags.nudge);
  if (nudge !== undefined && !(nudge > 0 && nudge < 1))
    throw bad(`--nudge is a part of the window between 0 and 1, not '${flags.nudge}'`);
  if (flags.force && nudge === undefined) throw bad("--force needs --nudge: it makes a demand of it");
  for (const server of mcp ?? []) parseMcpServer(server);
  return {
    harness: name,
    model: config.text("model"),
    workspace: resolve(workspace),
    ...(corpus !== undefined && { corpus: resolve(corpus) }),
    ...(baseUrl !== undefined && { baseUrl }),
    ...(nudge !== undefined && { nudge }),
    ...(flags.force && { force: true }),
    ...(flags.tools && { tools: [...flags.tools] }),
    ...(mcp && { mcp: [...mcp] }),
    maxTurns,
    answer: baseUrl === undefined ? answerOf(config) : {},
  };
}

/** Stored with the run, so that a resumed run has the same options. */
function answerOf(config: Config): NonNullable<RunOptions["answer"]> {
  return {
    temperature: config.number("sampling.temperature"),
    reuse: config.choice("reuse"),
    repair: config.repair("repair"),
  };
}

function windowOf(given: string | undefined, { context, window: usual }: AgentRuntime): number {
  if (given === undefined) return usual;
  const window = parseTokens(given);
  if (window <= context) return window;
  throw bad(
    `--window ${given} is more than the ${context} tokens that model and cache have; raise --cache-tokens or ask for less`,
  );
}

/** `8192`, `8k`, `32K`. Throws BAD_CONFIG. */
export function parseTokens(text: string): number {
  const [, number, unit] = /^(\d+(?:\.\d+)?)\s*(k?)$/i.exec(text.trim()) ?? [];
  const tokens = Math.round(Number(number) * (unit ? 1024 : 1));
  if (number === undefined || tokens < 512)
    throw bad(`--window is a number of tokens from 512, such as 32k, not '${text}'`);
  return tokens;
}

function bad(what: string): PocketError {
  return new PocketError("BAD_CONFIG", `${what}.`);
}
