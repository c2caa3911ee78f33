// npm run bench -- <name> [options]: one benchmark, a Markdown table on standard output, JSON lines in
// bench/results/. Timings inform; what must not change is counted in the tests.
import { Command, Option } from "commander";
import { compaction } from "./compaction.ts";
import { engine } from "./engine.ts";
import { perplexity } from "./perplexity.ts";

const program = new Command("bench").description("Benchmarks of Pocket; every row names its condition.");

const model = () =>
  new Option("--model <ids...>", "model ids, or id.format as pocket ls shows them").default([
    "qwen2.5-coder-0.5b",
  ]);
const numbers = (text: string) => text.split(",").map(Number);

program
  .command("compaction")
  .description("time to first token after the oldest messages became a summary, suffix against prefix reuse")
  .addOption(model())
  .option("--contexts <tokens>", "prompt lengths", numbers, [4096, 8192, 16_384])
  .option("--repeat <n>", "repetitions", Number, 1)
  .action(compaction);

program
  .command("engine")
  .description("tokens a second: prefill at depth, decode at depth, streams together")
  .addOption(model())
  .option("--depths <tokens>", "tokens already in the cache", numbers, [0, 2048, 8192])
  .option("--kv <type>", "f32, f16, bf16, int8", "f16")
  .option("--activations <type>", "int8 or f32", "int8")
  .action(engine);

program
  .command("perplexity")
  .description("of test/golden/corpus.txt, beside the reference's")
  .addOption(model())
  .option("--kv <types>", "f32, f16, bf16, int8", (text: string) => text.split(","), ["f16"])
  .option("--activations <types>", "int8, f32", (text: string) => text.split(","), ["int8"])
  .action(perplexity);

await program.parseAsync();
