// The agent commands: pocket run, and pocket runs ls | show | resume | export | check | replay. Flags and help only;
// run.ts and runs.ts have the code and are loaded on demand.
import { type Command, Option } from "commander";
import type { Config } from "../config/config.ts";
import type { Setting } from "../config/settings.ts";
import { harnessNames } from "../harness/policies/registry.ts";
import type { RunFlags } from "./run.ts";

/** What main.ts does for every command. */
export interface CommandHelpers {
  withSettings(command: Command, wanted: (setting: Setting) => boolean): Command;
  configOf(command: Command, more?: Readonly<Record<string, string>>): Config;
  examples(command: Command, lines: readonly string[]): Command;
  print(line: string): void;
}

/** Settings of a model in this process. */
const runKeys =
  /^(model|models\.dir|weights|threads|isa|activations|reuse|repair|idle_repair|step_tokens|agent\.runs|cache\..*|sampling\..*)$/;
const storeKeys = (setting: Setting) => setting.key === "agent.runs";

export function agentCommands(program: Command, helpers: CommandHelpers): void {
  runCommand(program, helpers);
  const runs = helpers.examples(program.command("runs").helpCommand(false), [
    "pocket runs ls                                 every run, newest first",
    "pocket runs show run-1a2b3c4d                  what each turn cost",
    "pocket runs resume run-1a2b3c4d                go on with one that was interrupted",
    "pocket runs export run-1a2b3c4d > run.jsonl    all of it, word for word",
    "pocket runs replay run.jsonl                   what it costs under each harness",
  ]);
  runs.description("look at agent runs, resume and export them");
  resumeCommand(runs, helpers);
  storeCommands(runs, helpers);
}

function runCommand(program: Command, helpers: CommandHelpers): void {
  const { withSettings, configOf, examples } = helpers;
  const lines = [
    'pocket run "What does src/ do?"                         in the current folder',
    'pocket run "Fix the failing test" --workspace ../shop --window 32k',
    'pocket run "…" --base-url http://127.0.0.1:8080/v1      on a server; its key from OPENAI_API_KEY',
  ];
  const command = examples(program.command("run"), lines)
    .description("run an agent on a task; Ctrl-C leaves a run that can be resumed")
    .argument("<task>", "what the agent is to do")
    .optionsGroup("Options:")
    .addOption(
      new Option("--harness <name>", "how it treats its history (pca: Pocket Context | react: keeps all)")
        .choices(harnessNames)
        .default("pca"),
    )
    .option("--workspace <folder>", "folder that it may read, change and run commands in [.]")
    .option("--corpus <folder>", "documents (.txt, .md, .jsonl) that it may search and open [none]")
    .option("--window <tokens>", "window of the run, such as 32k [half of cache.tokens; 32k on a server]")
    .option("--max-turns <number>", "calls of the agent, after which it has to answer", "100")
    .option("--base-url <url>", "OpenAI-compatible server instead of a model in this process [none]")
    .option(
      "--nudge [share]",
      "ask it once to compact from this part of the window on (not the article's) [off; 0.6]",
    )
    .option("--force", "with --nudge: every answer a call, read all files first, compact on demand [off]")
    .option("--tools <names...>", "tools that it is offered, such as read write [all of them]")
    .option("--mcp <name=server...>", "MCP servers whose tools it may use: a command or URL each [none]")
    .option("--id <name>", "name of the run [made up]")
    .option("--json", "one JSON object per event")
    .action(async (task: string, given: RunFlags, command: Command) => {
      const { parseTokens, run } = await import("./run.ts");
      let config = configOf(command);
      // With --window and without cache.tokens, make the cache large enough.
      if (given.window !== undefined && config.source("cache.tokens") === "default") {
        const needed = Math.max(2 * parseTokens(given.window), config.number("cache.tokens"));
        config = configOf(command, { "cache.tokens": String(needed) });
      }
      await run(task, given, config, { screen: process.stdout });
    });
  withSettings(command, ({ key }) => runKeys.test(key));
}

function resumeCommand(runs: Command, { withSettings, configOf }: CommandHelpers): void {
  withSettings(runs.command("resume"), ({ key }) => runKeys.test(key))
    .description("go on with a run; with a task, one that has its answer too")
    .argument("<id>", "see pocket runs ls")
    .argument("[task]", "something more to do")
    .option("--json", "one JSON object per event")
    .action(async (id: string, task: string | undefined, given: { json?: boolean }, command: Command) => {
      const { resume } = await import("./run.ts");
      await resume(id, task, given, configOf(command), { screen: process.stdout });
    });
}

function storeCommands(runs: Command, { withSettings, configOf, print }: CommandHelpers): void {
  const json = ["--json", "as JSON"] as const;
  withSettings(runs.command("ls"), storeKeys)
    .description("list runs, newest first")
    .option(...json)
    .action(async (given: { json?: boolean }, command: Command) => {
      const { listRuns } = await import("./runs.ts");
      listRuns(configOf(command), given.json === true, print);
    });
  withSettings(runs.command("show"), storeKeys)
    .description("show what each turn of a run cost, and its answer")
    .argument("<id>")
    .option(...json)
    .action(async (id: string, given: { json?: boolean }, command: Command) => {
      const { showRun } = await import("./runs.ts");
      showRun(id, configOf(command), given.json === true, print);
    });
  withSettings(runs.command("export"), storeKeys)
    .description("write a run as JSON lines, every original word for word")
    .argument("<id>")
    .action(async (id: string, _given: unknown, command: Command) => {
      const { exportOne } = await import("./runs.ts");
      exportOne(id, configOf(command), print);
    });
  withSettings(runs.command("check"), storeKeys)
    .description("look for damage in the store of runs, or in one of them")
    .argument("[id]")
    .action(async (id: string | undefined, _given: unknown, command: Command) => {
      const { checkRuns } = await import("./runs.ts");
      checkRuns(id, configOf(command), print);
    });
  runs
    .command("replay")
    .description("count what an exported run costs under each harness; no model is asked")
    .argument("<file>", "what pocket runs export wrote")
    .addOption(new Option("--harness <name>", "only this one").choices(harnessNames))
    .option(...json)
    .action(async (file: string, given: { harness?: (typeof harnessNames)[number]; json?: boolean }) => {
      const { replayFile } = await import("./runs.ts");
      await replayFile(file, given.harness, given.json === true, print);
    });
}
