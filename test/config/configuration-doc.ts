// docs/configuration.md, made from the table of settings. Defaults that differ between machines are described.
import { environmentName, flagName, offFlagName, type Setting, settings } from "../../src/config/settings.ts";

const machineDefaults: Readonly<Record<string, string>> = {
  threads: "number of processors",
  "models.dir": "user's cache folder",
  "agent.runs": "`runs.sqlite` in the user's data folder",
};

const opening = `# Configuration

Made from \`src/config/settings.ts\`. After a change there, run \`WRITE_DOCS=1 npx vitest run --config
test/vitest.config.ts test/config\`.

## Where a value comes from

The first source that has the setting wins:

1. the flag, such as \`--cache-tokens 65536\`;
2. the environment variable, such as \`POCKET_CACHE_TOKENS=65536\`;
3. the TOML file, such as \`cache.tokens = 65536\`: \`--config FILE\`, else \`POCKET_CONFIG\`, else \`config.toml\` in the
   user's configuration folder for \`pocket\`;
4. the default.

\`pocket config\` shows every setting, its value and its source. An unknown key in the file is an error; an unknown
variable that looks like a setting is a warning. A list is written with commas in a flag or variable and as a TOML list
in the file. A switch takes \`true\`, \`1\`, \`yes\`, \`on\` or their opposites; its flags take no value.

Variables that are not settings: \`POCKET_CONFIG\` (above), \`POCKET_CACHE\` (default of \`models.dir\`) and
\`POCKET_OFFLINE\` (for scripts: do not use the network).

## Settings
`;

export function configurationDoc(): string {
  return `${opening}\n${settings.map(section).join("\n")}`;
}

function section(setting: Setting): string {
  const { key, type, sentence, unit } = setting;
  const flags =
    type.kind === "switch" ? `\`${flagName(key)}\`, \`${offFlagName(key)}\`` : `\`${flagName(key)}\``;
  return [
    `### \`${key}\``,
    "",
    `${sentence[0]!.toUpperCase()}${sentence.slice(1)}.`,
    "",
    `- Value: ${valuesOf(setting)}${unit === "" || type.kind === "switch" ? "" : ` (${unit})`}`,
    `- Default: ${defaultOf(setting)}`,
    `- Flag and variable: ${flags}; \`${environmentName(key)}\``,
    "",
  ].join("\n");
}

function valuesOf({ type }: Setting): string {
  switch (type.kind) {
    case "choice":
      return type.choices.map((word) => `\`${word}\``).join(", ");
    case "integer":
      return `whole number from ${type.min} to ${type.max}`;
    case "number":
      return `number from ${type.min} to ${type.max}`;
    case "bytes":
      return `size from ${type.min} to ${type.max} bytes, such as \`512M\` or \`8G\``;
    case "switch":
      return "`true` or `false`";
    case "texts":
      return "list of texts";
    case "repair":
      return "`none`, `assistant`, `assistant+256`, `first-assistant`, a number of tokens or a fraction";
    default:
      return "text";
  }
}

function defaultOf({ key, default: value }: Setting): string {
  const described = machineDefaults[key];
  if (described !== undefined) return described;
  if (value === undefined || (Array.isArray(value) && value.length === 0)) return "none";
  return `\`${String(value)}\``;
}
