// Perplexity of test/golden/corpus.txt: windows of 2,048 tokens that do not see one another, the first token of
// each unscored, exactly as scripts/golden.py scores the reference in float32. What a weight format, a KV type
// or quantised activations cost is the difference from that reference.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { KvType, Runner } from "../../src/engine/addon.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf, openBenchRunner } from "../support/open-model.ts";
import { commas, kvsOption, modelOption } from "../support/options.ts";
import { Report } from "../support/results.ts";

const windowTokens = 2048;
/** Rows of logits held at a time: 128 of 152,000 floats are 78 MB. */
const chunkTokens = 128;

export interface PerplexityOptions {
  readonly model: readonly string[];
  readonly kv: readonly string[];
  readonly activations: readonly string[];
}

export async function perplexity(options: PerplexityOptions): Promise<void> {
  const root = packageRoot();
  const report = new Report("perplexity", thisMachine(), root);
  const golden = JSON.parse(readFileSync(join(root, "test/golden/corpus.json"), "utf8")) as Record<
    string,
    { perplexity: number }
  >;
  const corpus = readFileSync(join(root, "test/golden/corpus.txt"), "utf8");
  for (const name of options.model) {
    const folder = folderOf(name);
    const tokens = tokenise(folder, corpus);
    for (const activations of options.activations as ("int8" | "f32")[]) {
      for (const kvType of options.kv as KvType[]) {
        const { runner, manifest } = await openBenchRunner(folder, {
          tokens: windowTokens,
          kvType,
          activations,
        });
        const begin = performance.now();
        const { nll, scored } = await score(runner, tokens);
        const seconds = (performance.now() - begin) / 1000;
        await runner.close();
        const reference = golden[manifest.id]?.perplexity ?? Number.NaN;
        const measured = Math.exp(nll / scored);
        report.add({
          row: `${manifest.id} weights=${manifest.weights.format} activations=${activations} kv=${kvType} @ w2048`,
          tokens: tokens.length,
          perplexity: measured.toFixed(4),
          "reference f32": reference.toFixed(4),
          difference: `${((measured / reference - 1) * 100).toFixed(2)} %`,
          "bits/weight": manifest.weights.bitsPerWeight,
          "tokens/s": tokens.length / seconds,
        });
      }
    }
  }
  report.print();
}

function tokenise(folder: string, text: string): Int32Array {
  const read = (name: string) => JSON.parse(readFileSync(join(folder, name), "utf8")) as never;
  return new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json")).encodeContent(text);
}

async function score(runner: Runner, tokens: Int32Array): Promise<{ nll: number; scored: number }> {
  let nll = 0;
  let scored = 0;
  for (let start = 0; start < tokens.length; start += windowTokens) {
    const window = tokens.subarray(start, start + windowTokens);
    const id = runner.newSequence();
    runner.splice(id, [{ start: 0, end: 0, count: window.length }]);
    for (let at = 0; at < window.length; at += chunkTokens) {
      const chunk = window.subarray(at, at + chunkTokens);
      const targets = Int32Array.from(chunk, (_, index) => window[at + index + 1] ?? -1);
      const { outcomes } = await runner.step([{ sequence: id, tokens: chunk, targets }]);
      for (const [index, logprob] of outcomes[0]!.targetLogprobs.entries()) {
        if (targets[index]! < 0) continue;
        nll -= logprob;
        scored++;
      }
    }
    runner.release(id);
  }
  return { nll, scored };
}

export const perplexityCommand = new Command("perplexity")
  .description("perplexity of test/golden/corpus.txt, and its difference from the float32 reference")
  .addOption(modelOption())
  .addOption(kvsOption())
  .option("--activations <types>", "int8, f32", commas, ["int8"])
  .action(perplexity);
