// pocket config: every setting, its value, its unit and the source of the value. API keys are secret: the output
// says whether there are any, never what they are.
import type { Config } from "../config/config.ts";
import { type SettingKey, settings } from "../config/settings.ts";

export function showConfig(config: Config, write: (line: string) => void): void {
  const rows = settings.map(({ key, unit, sentence }) => ({
    key,
    value: `${shown(key, config)}${unit === "" ? "" : ` ${unit}`}`,
    source: config.source(key),
    sentence,
  }));
  const width = (pick: (row: (typeof rows)[number]) => string) =>
    Math.max(...rows.map((row) => pick(row).length));
  const keys = width(({ key }) => key);
  const values = width(({ value }) => value);
  const sources = width(({ source }) => source);
  for (const { key, value, source, sentence } of rows) {
    write(`${key.padEnd(keys)}  ${value.padEnd(values)}  ${source.padEnd(sources)}  ${sentence}`);
  }
  write(`\nfile: ${config.path}${config.hasFile ? "" : " (not there)"}`);
}

function shown(key: SettingKey, config: Config): string {
  if (key === "server.api_key") return config.optional(key) === undefined ? "none" : "set, a";
  if (key === "server.api_keys") return String(config.texts(key).length);
  if (key === "cache.dir") return config.optional(key) ?? "none, a";
  if (key === "server.allowed_hosts") return config.texts(key).join(",") || "no";
  return String(config.value(key));
}
