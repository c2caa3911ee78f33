// Reads the value of every setting of settings.ts: flags before environment before the TOML file before the
// default. The error for an unknown key names the nearest one; the error for a bad value names its source. The
// keys that a caller may ask for are checked by the compiler.
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import envPaths from "env-paths";
import { parse as parseToml } from "smol-toml";
import { PocketError } from "../errors.ts";
import { parseRepair, repairGrammar } from "../repair.ts";
import {
  type ChoiceOf,
  editDistance,
  environmentName,
  flagName,
  type KeyOf,
  nearest,
  type OptionalKey,
  type Setting,
  type SettingKey,
  settings,
  type Value,
} from "./settings.ts";

export type Source = "flag" | "environment" | "file" | "default";

/** Variables that are not settings: read here and by scripts. */
const otherVariables = new Set(["POCKET_CACHE", "POCKET_CONFIG", "POCKET_OFFLINE"]);

export interface Given {
  /** Values by key, still as text. */
  readonly flags: Readonly<Record<string, string>>;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** A TOML file that must exist; absent: the one in the user's configuration folder, if any. */
  readonly file?: string;
}

export class Config {
  private constructor(
    private readonly values: ReadonlyMap<string, { value: Value | undefined; source: Source }>,
    /** Sentences about environment variables that look misspelt. */
    readonly warnings: readonly string[],
    /** The file that was read, or would have been. */
    readonly path: string,
    readonly hasFile: boolean,
  ) {}

  /** Throws BAD_CONFIG with the key, where it came from and what it may be. */
  static read(given: Given): Config {
    const { file, path, hasFile } = readFile(given);
    for (const key of file.keys()) knownSetting(key, path);
    for (const key of Object.keys(given.flags)) knownSetting(key, "the command line");
    const values = new Map<string, { value: Value | undefined; source: Source }>();
    for (const each of settings) {
      const flag = given.flags[each.key];
      const variable = environmentValue(each, given.environment);
      if (flag !== undefined) {
        values.set(each.key, { value: parseText(each, flag, flagName(each.key)), source: "flag" });
      } else if (variable !== undefined) {
        const value = parseText(each, variable, environmentName(each.key));
        values.set(each.key, { value, source: "environment" });
      } else if (file.has(each.key)) {
        values.set(each.key, {
          value: check(each, file.get(each.key), `${each.key} in ${path}`),
          source: "file",
        });
      } else {
        values.set(each.key, { value: each.default, source: "default" });
      }
    }
    return new Config(values, misspeltVariables(given.environment), path, hasFile);
  }

  text(key: Exclude<KeyOf<"text">, OptionalKey>): string {
    return String(this.value(key));
  }

  choice<Key extends KeyOf<"choice">>(key: Key): ChoiceOf<Key> {
    return this.value(key) as ChoiceOf<Key>;
  }

  number(key: KeyOf<"integer" | "number" | "bytes">): number {
    return Number(this.value(key));
  }

  flag(key: KeyOf<"switch">): boolean {
    return this.value(key) === true;
  }

  texts(key: KeyOf<"texts">): readonly string[] {
    return (this.value(key) ?? []) as readonly string[];
  }

  repair(key: KeyOf<"repair">) {
    return parseRepair(String(this.value(key)))!;
  }

  /** Undefined when the setting has neither value nor default. */
  optional(key: OptionalKey): string | undefined {
    const value = this.value(key);
    return value === undefined ? undefined : String(value);
  }

  /** The value of any setting; undefined as in `optional`. */
  value(key: SettingKey): Value | undefined {
    return this.values.get(key)?.value;
  }

  source(key: SettingKey): Source {
    return this.values.get(key)?.source ?? "default";
  }
}

export function defaultConfigFile(): string {
  return join(envPaths("pocket", { suffix: "" }).config, "config.toml");
}

function knownSetting(key: string, where: string): void {
  if (settings.some((each) => each.key === key)) return;
  const right = nearest(
    key,
    settings.map((each) => each.key),
  );
  throw badConfig(`'${key}' in ${where} is not a setting; did you mean '${right}'?`);
}

/** POCKET_CACHE, if set, is the default of models.dir. */
function environmentValue(each: Setting, environment: Given["environment"]): string | undefined {
  const own = environment[environmentName(each.key)];
  return own ?? (each.key === "models.dir" ? environment.POCKET_CACHE || undefined : undefined);
}

function misspeltVariables(environment: Given["environment"]): string[] {
  const names = settings.map((each) => environmentName(each.key));
  return Object.keys(environment)
    .filter((name) => name.startsWith("POCKET_") && !names.includes(name) && !otherVariables.has(name))
    .filter((name) => editDistance(name, nearest(name, names)) <= 2)
    .map(
      (name) =>
        `The variable ${name} is not a setting and has no effect; did you mean ${nearest(name, names)}?`,
    );
}

function readFile(given: Given): { file: Map<string, unknown>; path: string; hasFile: boolean } {
  const named = given.file ?? given.environment.POCKET_CONFIG;
  const path = (named ?? defaultConfigFile()).replace(/^~(?=\/)/, homedir());
  if (!existsSync(path)) {
    if (named !== undefined) throw badConfig(`There is no configuration file ${path}.`);
    return { file: new Map(), path, hasFile: false };
  }
  try {
    return { file: flatten(parseToml(readFileSync(path, "utf8"))), path, hasFile: true };
  } catch (cause) {
    throw badConfig(`${path} cannot be read: ${(cause as Error).message.split("\n", 1)[0]}.`);
  }
}

function flatten(table: object, prefix = ""): Map<string, unknown> {
  const flat = new Map<string, unknown>();
  for (const [name, value] of Object.entries(table)) {
    const isTable = typeof value === "object" && value !== null && !Array.isArray(value);
    if (!isTable) flat.set(prefix + name, value);
    else for (const [key, inner] of flatten(value, `${prefix}${name}.`)) flat.set(key, inner);
  }
  return flat;
}

function parseText(each: Setting, given: string, where: string): Value {
  const word = given.trim();
  switch (each.type.kind) {
    case "texts":
      return word
        .split(",")
        .map((part) => part.trim())
        .filter(Boolean);
    case "integer":
    case "number":
      return check(each, word === "" ? given : Number(word), where);
    case "switch":
      return check(each, switches.get(word.toLowerCase()) ?? given, where);
    default:
      return check(each, given, where);
  }
}

const switches: ReadonlyMap<string, boolean> = new Map([
  ...["true", "1", "yes", "on"].map((word) => [word, true] as const),
  ...["false", "0", "no", "off"].map((word) => [word, false] as const),
]);

/** 8G, 512M, 1.5G or a plain number; NaN for anything else. */
function bytesOf(value: unknown): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(String(value).trim()) ?? [];
  if (digits === undefined) return Number.NaN;
  return Math.floor(Number(digits) * 1024 ** " kmgt".indexOf(unit!.toLowerCase() || " "));
}

function check(each: Setting, value: unknown, where: string): Value {
  const { type } = each;
  switch (type.kind) {
    case "text":
      if (typeof value === "string" && value !== "") return value;
      throw badConfig(`${where} must be text, not ${JSON.stringify(value)}.`);
    case "texts":
      if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value;
      throw badConfig(`${where} must be a list of texts, not ${JSON.stringify(value)}.`);
    case "choice":
      if (typeof value === "string" && type.choices.includes(value)) return value;
      throw badConfig(`${where} must be ${type.choices.join(", ")}, not ${JSON.stringify(value)}.`);
    case "switch":
      if (typeof value === "boolean") return value;
      throw badConfig(`${where} must be true or false, not ${JSON.stringify(value)}.`);
    case "bytes": {
      const bytes = bytesOf(value);
      if (bytes >= type.min && bytes <= type.max) return bytes;
      throw badConfig(
        `${where} must be a size from ${type.min} to ${type.max} bytes, such as 512M or 8G, not ${JSON.stringify(value)}.`,
      );
    }
    case "repair":
      if (parseRepair(String(value)) !== undefined) return String(value);
      throw badConfig(`${where} must be ${repairGrammar}, not ${JSON.stringify(value)}.`);
    default: {
      const { multipleOf = 1 } = type;
      if (typeof value === "number" && Number.isInteger(value) && value % multipleOf !== 0) {
        throw badConfig(`${where} must be a multiple of ${multipleOf}, not ${value}.`);
      }
      const isFit = typeof value === "number" && value >= type.min && value <= type.max;
      if (isFit && (type.kind === "number" || Number.isInteger(value))) return value;
      const what = type.kind === "integer" ? "a whole number" : "a number";
      const shown = typeof value === "number" ? String(value) : JSON.stringify(value);
      throw badConfig(`${where} must be ${what} from ${type.min} to ${type.max}, not ${shown}.`);
    }
  }
}

function badConfig(detail: string): PocketError {
  return new PocketError("BAD_CONFIG", detail);
}
