// The table of settings: key, kind, default, unit and a sentence each. Flags, environment variables, the
// configuration file and `pocket config` are all made from it. Reading values is config/config.ts's.
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
  /** A number of bytes; as text also with a unit, 512M or 8G (1024 each). */
  | { readonly kind: "bytes"; readonly min: number; readonly max: number }
  /** true or false; a flag `--name` or `--no-name`. */
  | { readonly kind: "switch" }
  /** none, a kind of survivor, a number of tokens or a fraction of them. */
  | { readonly kind: "repair" };

export interface Setting {
  readonly key: string;
  readonly type: Kind;
  /** Absent: the setting is off, or the model decides. */
  readonly default?: Value;
  readonly unit: string;
  readonly sentence: string;
}

export type Value = string | number | boolean | readonly string[];

const text = { kind: "text" } as const;
const integer = (min: number, max: number) => ({ kind: "integer", min, max }) as const;
const number = (min: number, max: number) => ({ kind: "number", min, max }) as const;
const choice = (...choices: string[]) => ({ kind: "choice", choices }) as const;

export const settings: readonly Setting[] = [
  setting("model", text, "qwen2.5-coder-0.5b", "id", "registry id of the model to serve"),
  setting("models.dir", text, defaultCacheDir(), "folder", "where models are fetched to and imported into"),
  setting(
    "host",
    text,
    "127.0.0.1",
    "address",
    "address to listen on; anything but loopback wants an API key",
  ),
  setting("port", integer(0, 65_535), 8080, "port", "port to listen on; 0 takes a free one"),
  setting(
    "cache.tokens",
    integer(16, 100_000_000),
    32_768,
    "tokens",
    "tokens that the pool of keys and values holds",
  ),
  setting(
    "cache.page_size",
    { ...integer(16, 1024), multipleOf: 16 },
    16,
    "tokens",
    "tokens a page holds; a multiple of 16",
  ),
  setting(
    "cache.kv_type",
    choice("f32", "f16", "bf16", "int8"),
    "f16",
    "type",
    "number format of keys and values; int8 takes about half of f16, at a mean KL of some 6e-4",
  ),
  setting("cache.dir", text, undefined, "folder", "where sessions that had to go are kept; none: nowhere"),
  setting(
    "cache.disk",
    { kind: "bytes", min: 1_048_576, max: 2 ** 50 },
    8 * 2 ** 30,
    "bytes",
    "most that cache.dir may hold, such as 512M or 8G",
  ),
  setting("threads", integer(1, 1024), availableParallelism(), "threads", "threads that compute"),
  setting("step_tokens", integer(1, 65_536), 512, "tokens", "tokens computed per step, over all requests"),
  setting(
    "gap_ms",
    integer(1, 60_000),
    200,
    "milliseconds",
    "time between two tokens of a running answer that a step leaves room for",
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
    "weights to import and serve",
  ),
  setting(
    "linear",
    choice("pocket", "ort"),
    "pocket",
    "operator",
    "who multiplies: our operator on packed panels, or ONNX Runtime's MatMulNBits; each has its own model folder",
  ),
  setting(
    "reuse",
    choice("suffix", "prefix", "none"),
    "suffix",
    "mode",
    "what to keep after an edit, unless the request says",
  ),
  setting(
    "repair",
    { kind: "repair" },
    "assistant",
    "mode",
    "survivors to recompute: none, assistant, assistant+256, first-assistant, a count or a fraction",
  ),
  setting(
    "idle_repair",
    { kind: "switch" },
    true,
    "switch",
    "recompute approximate cells of a session while it waits for its client",
  ),
  setting(
    "lookup",
    { kind: "switch" },
    true,
    "switch",
    "propose tokens from the conversation's own text and compute several in a step where it pays",
  ),
  setting("server.active", integer(1, 1024), 8, "requests", "requests served at the same time"),
  setting(
    "server.queue",
    integer(0, 100_000),
    64,
    "requests",
    "requests that may wait; the next one gets 429",
  ),
  setting("server.body_limit", integer(1024, 1_073_741_824), 67_108_864, "bytes", "largest request body"),
  setting("server.keep_alive", number(0.05, 3600), 10, "seconds", "time between comments in a silent stream"),
  setting("server.api_key", text, undefined, "secret", "key that every request must carry"),
  setting(
    "server.api_keys",
    { kind: "texts" },
    [],
    "secrets",
    "further keys; each sees its own sessions only",
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
    "conversations kept resident; the least recently used goes first",
  ),
  setting(
    "sessions.ttl",
    number(0, 31_536_000),
    3600,
    "seconds",
    "time that an unused conversation is kept; 0: until room is needed",
  ),
  setting("sampling.temperature", number(0, 2), 0.7, "", "sampling temperature; 0 is greedy"),
  setting("sampling.top_p", number(0.001, 1), 0.8, "", "nucleus probability"),
  setting("sampling.top_k", integer(0, 1_000_000), 20, "tokens", "candidates per token; 0 is all"),
  setting("sampling.min_p", number(0, 1), 0, "", "least probability relative to the best"),
  setting(
    "sampling.repetition_penalty",
    number(0.01, 10),
    1.05,
    "",
    "divides logits of tokens seen before; 1 is off",
  ),
  setting("agent.runs", text, defaultRunsFile(), "file", "where agent runs are kept, word for word"),
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
    "let agent runs be started without an API key, by everybody who reaches the server",
  ),
  setting(
    "agent.workspaces",
    text,
    undefined,
    "folder",
    "holds the workspaces of agent runs over HTTP, named by the request; none: runs have no files and no shell",
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

function setting(
  key: string,
  type: Kind,
  fallback: Value | undefined,
  unit: string,
  sentence: string,
): Setting {
  return { key, type, unit, sentence, ...(fallback !== undefined && { default: fallback }) };
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
