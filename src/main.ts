#!/usr/bin/env node
// The command line: commands, flags made from the table of settings, help that begins with examples. The code of a
// command is in cli/ and loaded on demand. An error becomes one line on standard error and a non-zero exit.
import { Command, Option } from "commander";
import { agentCommands } from "./cli/agent-commands.ts";
import { showConfig } from "./cli/config.ts";
import { Config } from "./config/config.ts";
import { flagName, offFlagName, type Setting, settings, type Value } from "./config/settings.ts";
import { PocketError } from "./errors.ts";

/** Settings that commands about model folders take. */
const folderKeys = ["models.dir", "weights", "linear"];

const program = new Command("pocket")
  .usage("<command> [options]")
  .helpCommand(false)
  .configureHelp({ helpWidth: 120, showGlobalOptions: false })
  .description("Serves local models over HTTP (OpenAI-compatible); the cache survives edits in the middle.");

examples(program, [
  "pocket serve                                   serve the default model on 127.0.0.1:8080",
  "pocket serve --model smollm2-135m --port 9000  serve another one elsewhere",
  "pocket pull qwen2.5-coder-1.5b                 fetch and import a model",
  "pocket import my.gguf --id mine                import a GGUF file that is here already",
  'pocket run "task" --workspace .                an agent that manages its own context, on the default model',
]);

examples(
  withSettings(program.command("serve"), () => true),
  [
    "pocket serve --pull                            fetch the default model if need be, serve it",
    "pocket serve --cache-tokens 131072 --threads 8",
    "POCKET_SERVER_API_KEY=… pocket serve --host 0.0.0.0",
  ],
)
  .description("serve a model over HTTP")
  .option("--pull", "fetch and import the model first when it is not there")
  .action(async (given: Record<string, unknown>, command: Command) => {
    const { serve } = await import("./cli/serve.ts");
    await serve(configOf(command), { pull: given.pull === true });
  });

withSettings(program.command("pull"), ({ key }) => key === "mirror" || folderKeys.includes(key))
  .description("fetch a model of the registry and import it; resumes, checks the digest")
  .argument("[id]", "registry id (default: the setting model)")
  .action(async (id: string | undefined, _given: unknown, command: Command) => {
    const config = configOf(command);
    const { pull } = await import("./cli/pull.ts");
    await pull(id ?? config.text("model"), config);
  });

withSettings(program.command("import"), ({ key }) => folderKeys.includes(key))
  .description("import a GGUF file into a model folder")
  .argument("<file>", "a GGUF file")
  .requiredOption("--id <id>", "name under which it will be served")
  .action(async (file: string, given: { id: string }, command: Command) => {
    const { importFile } = await import("./cli/import.ts");
    await importFile(file, given.id, configOf(command));
  });

withSettings(program.command("ls"), ({ key }) => folderKeys.includes(key))
  .description("list the models that can be pulled and those that are here")
  .action(async (_given: unknown, command: Command) => {
    const { list } = await import("./cli/ls.ts");
    list(configOf(command), print);
  });

agentCommands(program, { withSettings, configOf, examples, print });

withSettings(program.command("config"), () => true)
  .description("show every setting, its value and where it came from")
  .action((_given: unknown, command: Command) => showConfig(configOf(command), print));

try {
  await program.parseAsync();
} catch (cause) {
  process.stderr.write(`pocket: ${sentence(cause).replaceAll(/\s*\n\s*/g, " ")}\n`);
  process.exitCode = 1;
}

/** Adds lines before the help of `command`. */
function examples(command: Command, lines: readonly string[]): Command {
  return command.addHelpText("before", `${lines.map((line) => `  ${line}`).join("\n")}\n`);
}

function withSettings(command: Command, wanted: (setting: Setting) => boolean): Command {
  command.optionsGroup("Settings:");
  for (const setting of settings.filter(wanted))
    for (const option of optionsOf(setting)) command.addOption(option);
  command.option("--config <file>", "TOML file with settings (also POCKET_CONFIG)");
  return command;
}

function optionsOf({ key, type, unit, sentence, default: fallback }: Setting): Option[] {
  if (type.kind === "switch") {
    const on = new Option(flagName(key), `${sentence} [${fallback === true ? "on" : "off"}]`);
    return [on, new Option(offFlagName(key), "do not")];
  }
  const value = unit === "" ? "number" : unit;
  const choices = type.kind === "choice" ? ` (${type.choices.join(" | ")})` : "";
  const shown = fallback === undefined || String(fallback) === "" ? "none" : text(type, fallback);
  return [new Option(`${flagName(key)} <${value}>`, `${sentence}${choices} [${shown}]`)];
}

/** Whole gibibytes as `8G`. */
function text({ kind }: Setting["type"], value: Value): string {
  const gibibytes = Number(value) / 2 ** 30;
  return kind === "bytes" && Number.isInteger(gibibytes) ? `${gibibytes}G` : String(value);
}

/** Flags keep their text until config/config.ts reads them, so a bad one is refused like any other value; `more`: beneath them. */
function configOf(command: Command, more: Readonly<Record<string, string>> = {}): Config {
  const flags: Record<string, string> = { ...more };
  for (const { key } of settings) {
    const name = new Option(`${flagName(key)} <value>`).attributeName();
    const value: unknown = command.getOptionValue(name);
    if (typeof value === "string" || typeof value === "boolean") flags[key] = String(value);
  }
  const file: unknown = command.getOptionValue("config");
  const config = Config.read({
    flags,
    environment: process.env,
    ...(typeof file === "string" && { file }),
  });
  for (const warning of config.warnings) process.stderr.write(`pocket: ${warning}\n`);
  return config;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** One line for any thrown value; an unexpected failure also names its place in the code. */
function sentence(cause: unknown): string {
  if (cause instanceof PocketError) return cause.message;
  const { message, stack } = cause instanceof Error ? cause : new Error(String(cause));
  const where = stack?.split("\n").find((line) => line.trim().startsWith("at "));
  return `failed unexpectedly: ${message}${where ? ` (${where.trim()})` : ""}`;
}
