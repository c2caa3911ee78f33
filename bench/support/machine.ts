// What a number was measured on: processor kind and the features that matter to the kernels, and the commit.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly features: readonly string[];
  readonly memoryGiB: number;
  readonly node: string;
  readonly commit: string;
  /** Processes that wanted a core, over the last minute before the bench: beyond the cores, times mean little. */
  readonly load: number;
}

const telling = [
  "avx2",
  "avx512f",
  "avx512_vnni",
  "avx512_bf16",
  "amx_tile",
  "amx_int8",
  "amx_bf16",
  "asimd",
];

export function thisMachine(): Machine {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: cpus().length,
    features: telling.filter((feature) => cpuFlags().has(feature)),
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    commit: commit(),
    load: Math.round((loadavg()[0] ?? 0) * 10) / 10,
  };
}

function cpuFlags(): ReadonlySet<string> {
  try {
    const line = readFileSync("/proc/cpuinfo", "utf8").match(/^(?:flags|Features)\s*:(.*)$/m);
    return new Set(line?.[1]?.trim().split(/\s+/));
  } catch {
    return new Set(); // not Linux: the row says no features rather than wrong ones
  }
}

/** Short hash, with a plus sign when the tree differs from it. */
function commit(): string {
  const git = (...words: string[]) => execFileSync("git", words, { encoding: "utf8" }).trim();
  try {
    return git("rev-parse", "--short", "HEAD") + (git("status", "--porcelain", "-uno") === "" ? "" : "+");
  } catch {
    return "unknown";
  }
}
