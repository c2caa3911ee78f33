// Peak resident memory of a server whose pool is full, and what it is made of. Linux tells (VmHWM and its kin in
// /proc/self/status); elsewhere the bench says that it cannot. This process loads TypeScript itself, which a
// built server does not: the row `process` is that share, measured before anything is opened.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import { openLocalModel } from "../../src/cli/local-model.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import { serverOptions } from "../../src/cli/serve.ts";
import { Config } from "../../src/config/config.ts";
import type { RunnerInfo } from "../../src/engine/addon.ts";
import { buildServer } from "../../src/server/app.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf } from "../support/open-model.ts";
import { compareOption, ggufOption, kvOption, modelOption } from "../support/options.ts";
import { Report } from "../support/results.ts";
import { memoryCompare } from "./memory-compare.ts";

interface Residence {
  /** MiB: the most ever, now, and of now what is backed by files. */
  readonly peak: number;
  readonly now: number;
  readonly files: number;
}

export async function memory(options: {
  readonly model: readonly string[];
  readonly tokens: number;
  readonly kv: string;
}): Promise<void> {
  const report = new Report("memory", thisMachine(), packageRoot());
  for (const name of options.model) await measure(report, name, options.tokens, options.kv);
  report.print();
}

async function measure(report: Report, name: string, tokens: number, kvType: string): Promise<void> {
  const condition = `${name}, pool ${tokens} tokens ${kvType}`;
  const before = residence();
  const folder = folderOf(name);
  const config = Config.read({
    flags: {
      "cache.tokens": String(tokens),
      "cache.kv_type": kvType,
      idle_repair: "false",
      log: "silent",
    },
    environment: process.env,
  });
  let info: RunnerInfo | undefined;
  const model = await openLocalModel(folder, config, {
    wrap(runner) {
      info = runner.describe();
      return runner;
    },
  });
  const app = buildServer(model.backend, serverOptions(config));
  try {
    await app.listen({ host: "127.0.0.1", port: 0 });
    const opened = residence();
    await fill(app, model.backend.model, tokens);
    const full = residence();
    const { pages, pagesUsed } = model.backend.counts();
    const add = (what: string, mebibytes: number) => report.add({ condition, what, MiB: mebibytes });
    add("peak (VmHWM)", full.peak);
    add("full, now", full.now);
    add("  process before the model", before.now);
    add("  weights in files on disk", weightBytes(folder) / mebi);
    add("  resident pages of files (weights mapped, libraries)", full.files);
    add("  not of files: packed weights, pool, buffers of a step, heap", full.now - full.files);
    add("  pool of keys and values", info!.kvBytes / mebi);
    add("  JavaScript heap", process.memoryUsage().heapUsed / mebi);
    add("  grown by opening", opened.now - before.now);
    add("  grown by filling", full.now - opened.now);
    report.add({ condition, what: "pages lent of all", MiB: `${pagesUsed} of ${pages}` });
  } finally {
    await app.close();
    await model.close();
  }
}

/** Sends prompts of at most a quarter of the pool each, one session after the other, until all pages are used. */
async function fill(
  app: ReturnType<typeof buildServer>,
  { context, vocab }: { readonly context: number; readonly vocab: number },
  tokens: number,
): Promise<void> {
  // What an answer and the edges of pages need stays free, or the first session would have to go again.
  const longest = Math.min(context - 64, Math.floor(tokens / 4) - 64);
  for (let left = tokens, session = 0; left > 64; session++) {
    const length = Math.min(longest, left - 48);
    const prompt = Array.from(
      { length },
      (_, at) => (at * 7919 + session * 104_729) % Math.min(vocab, 50_000),
    );
    const payload = { prompt, max_tokens: 1, pocket: { session: `fill-${session}` } };
    const response = await app.inject({ method: "POST", url: "/v1/completions", payload });
    if (response.statusCode !== 200) throw new Error(`filling was answered ${response.body}`);
    left -= length + 16;
  }
}

const mebi = 2 ** 20;

function residence(): Residence {
  const status = readFileSync("/proc/self/status", "utf8");
  const read = (key: string) => {
    const kibibytes = status.match(new RegExp(`^${key}:\\s+(\\d+) kB$`, "m"))?.[1];
    if (kibibytes === undefined) throw new Error(`this system does not tell ${key} in /proc/self/status`);
    return Number(kibibytes) / 1024;
  };
  return { peak: read("VmHWM"), now: read("VmRSS"), files: read("RssFile") };
}

function weightBytes(folder: string): number {
  return readdirSync(folder).reduce((sum, file) => sum + statSync(join(folder, file)).size, 0);
}

export const memoryCommand = new Command("memory")
  .description("peak resident memory of a server whose pool is full, and its parts")
  .addOption(modelOption())
  .option("--tokens <n>", "tokens of the pool", Number, 32_768)
  .addOption(kvOption())
  .addOption(compareOption())
  .addOption(ggufOption())
  .option("--peer-tokens <n>", "tokens that the peer computes; default: all", Number)
  .action((options) => (options.compare ? memoryCompare(options) : memory(options)));
