// npm run bench -- <name> [options]: one benchmark, a Markdown table on standard output, JSON lines in
// bench/results/. Timings inform; what must not change is counted in the tests.
import { join } from "node:path";
import { Command, Option } from "commander";
import { packageRoot } from "../src/cli/package-root.ts";
import { agent } from "./agent/agent.ts";
import { compaction, compactionParts } from "./compaction/compaction.ts";
import { gridNames } from "./compaction/grid.ts";
import { engine } from "./engine/engine.ts";
import { fidelity } from "./fidelity/fidelity.ts";
import { kernelNames, kernels } from "./kernels/kernels.ts";
import { load } from "./load/load.ts";
import { lookup } from "./lookup/lookup.ts";
import { memory } from "./memory/memory.ts";
import { memoryCompare } from "./memory/memory-compare.ts";
import { perplexity } from "./perplexity/perplexity.ts";
import { profile } from "./profile/profile.ts";
import { replayRuns } from "./replay/replay.ts";
import { writeReport } from "./report/write.ts";
import { soak } from "./soak/soak-command.ts";
import { throughput } from "./throughput/throughput.ts";

const program = new Command("bench").description("Benchmarks of Pocket; every row names its condition.");

const model = () =>
  new Option("--model <ids...>", "model ids, or id.format as pocket ls shows them").default([
    "qwen2.5-coder-0.5b",
  ]);
const commas = (text: string) => text.split(",");
const numbers = (text: string) => commas(text).map(Number);

const compactionCommand = (name: string) =>
  program
    .command(name)
    .addOption(model())
    .addOption(new Option("--grid <name>", "how much of it").choices(gridNames).default("headline"))
    .option("--contexts <tokens>", "prompt lengths, instead of the grid's", numbers)
    .option("--kv <type>", "f32, f16, bf16, int8", "f16")
    .option("--repeat <n>", "repetitions of what is cheap", Number, 3)
    .option("--prefill-cache <folder>", "keeps the prefill there, for the next run of the same model")
    .addOption(new Option("--bases <folder>").hideHelp())
    .addOption(
      new Option("--only <part>", "the grid's conditions, its chains, or the row over HTTP").choices(
        compactionParts,
      ),
    )
    .addOption(new Option("--compare <peer>", "the same prompts to a peer").choices(["llama.cpp"]))
    .option("--gguf <file>", "the peer's weights");

compactionCommand("compaction")
  .description("what a compaction costs, for each way to reuse the cache, over a grid of conditions")
  .action(compaction);

const compare = () =>
  new Option(
    "--compare <peer>",
    "takes turns with a peer on the same weights; scripts/peers builds it",
  ).choices(["llama.cpp"]);
const gguf = () =>
  new Option("--gguf <folders...>", "where the models' source files are, besides the downloads").default([]);
const repeat = (n: number) => new Option("--repeat <n>", "repetitions").argParser(Number).default(n);
compactionCommand("report")
  .description(
    "compaction and replay one after the other, and tables and figures of them in docs/performance/",
  )
  .option("--turns <n>", "moves of each recording", Number, 48)
  .option("--result-tokens <n>", "of one tool result, at most", Number, 600)
  .option("--only-write", "of the latest rows, without measuring", false)
  .option("--to <folder>", "where the report is written", join(packageRoot(), "docs", "performance"))
  .action(writeReport);

program
  .command("replay")
  .description("recorded agent runs on the real engine: Pocket Context Agent against ReAct on the same moves")
  .addOption(model())
  .option("--kv <type>", "f32, f16, bf16, int8", "f16")
  .option("--turns <n>", "moves of each recording that is made", Number, 48)
  .option("--result-tokens <n>", "of one tool result, at most", Number, 600)
  .option("--recordings <files...>", "of `pocket runs export`, instead of those that are made")
  .option("--prefix", "PCA once more with reuse of the prefix alone", false)
  .action(replayRuns);

program
  .command("engine")
  .description("tokens a second: prefill and decode at depth, a cold prompt, streams together")
  .addOption(model())
  .option("--depths <tokens>", "tokens already in the cache, for prefill and decode alike", numbers)
  .option("--kv <types>", "f32, f16, bf16, int8", commas, ["f16"])
  .option("--activations <type>", "int8 or f32", "int8")
  .addOption(
    new Option(
      "--compare <peers...>",
      "takes turns with peers on the same weights; scripts/peers builds them",
    )
      .choices(["llama.cpp", "genai"])
      .default([]),
  )
  .addOption(gguf())
  .option("--rows <choices>", 'such as "pp512,tg32 d0": all words of a choice occur', commas, [])
  .addOption(repeat(5))
  .option("--quick", "depths 0 and 2,048, three repetitions")
  .option("--no-bandwidth", "do not measure the memory's")
  .action(engine);

program
  .command("profile")
  .description("where the time of a decode step and of a prompt's 512 tokens goes, part by part")
  .addOption(model())
  .option("--depths <tokens>", "tokens already in the cache", numbers, [0])
  .option("--kv <types>", "f32, f16, bf16, int8", commas, ["f16"])
  .option("--activations <type>", "int8 or f32", "int8")
  .option("--rows <choices>", 'such as "decode,pp512 d0": all words of a choice occur', commas, [])
  .option("--threads <numbers>", "of the runner; default: as configured, and 1", numbers)
  .addOption(repeat(5))
  .option("--no-bandwidth", "do not measure the memory's")
  .action(profile);

program
  .command("throughput")
  .description("streams together against one, over the real server")
  .addOption(model())
  .option("--kv <type>", "f16 or int8", "f16")
  .option("--streams <n>", "at the same time", Number, 8)
  .option("--tokens <n>", "of each answer", Number, 128)
  .addOption(compare())
  .addOption(gguf())
  .addOption(repeat(5))
  .action(throughput);

for (const name of [...kernelNames(), "kernels"]) {
  program
    .command(`${name} [words...]`)
    .description(
      name === "kernels" ? "all of bench/kernels/native/" : `bench/kernels/native/${name}_bench.cpp`,
    )
    .action((words: string[]) => kernels(name === "kernels" ? kernelNames() : [name], words));
}

program
  .command("load")
  .description(
    "streams together, gaps of a stream beside a long prompt, cells from files against computing them",
  )
  .addOption(model())
  .option("--kv <type>", "f32, f16, bf16, int8", "f16")
  .option("--activations <type>", "int8 or f32", "int8")
  .option("--prompt <tokens>", "the long prompt", Number, 16_384)
  .option(
    "--watched <tokens>",
    "of the long prompt, read beside a stream; its end is the dearest",
    Number,
    2048,
  )
  .option("--tokens <n>", "new tokens of each stream", Number, 256)
  .action(load);

program
  .command("lookup")
  .description(
    "prompt lookup on against off, on an edit of a source file and on free text; what rows of a step cost",
  )
  .addOption(model())
  .option("--kv <type>", "f32, f16, bf16, int8", "f16")
  .option("--activations <type>", "int8 or f32, of the row costs", "int8")
  .option("--tokens <n>", "new tokens of each answer", Number, 400)
  .option("--repeat <n>", "pairs", Number, 5)
  .option("--rows <n>", "rows of a step; 1 alone: none are timed", numbers, [2, 3, 4, 6, 8, 12, 16])
  .option("--only <words...>", "answers whose name has all of these words", [])
  .action(lookup);

program
  .command("perplexity")
  .description("of test/golden/corpus.txt, beside the reference's")
  .addOption(model())
  .option("--kv <types>", "f32, f16, bf16, int8", commas, ["f16"])
  .option("--activations <types>", "int8, f32", commas, ["int8"])
  .action(perplexity);

program
  .command("fidelity")
  .description("what reuse and repair after a compaction cost in quality, against a cold prefill")
  .addOption(model())
  .option("--arms <names...>", "of these only (none, the oracle, always runs); default: all")
  .option("--seeds <numbers>", "conversations, one each", numbers, [0, 1, 2, 3])
  .option("--results <least,most>", "tokens of a tool's result", numbers, [250, 900])
  .option("--texts <folders...>", "tools return parts of the files in these folders, instead of frozen ones")
  .option(
    "--prefill-cache <folder>",
    "keeps prefills and answers there; arms that have a line already are passed over",
  )
  .addOption(new Option("--bases <folder>").hideHelp())
  .option("--chain <rounds>", "compactions in a row; 0: none", Number, 20)
  .addOption(
    new Option("--compare <engine>", "the same arms on the same tokens by another engine").choices([
      "transformers",
    ]),
  )
  .addOption(gguf())
  .option("--tables <file>", "measure nothing: print the tables of a file of earlier runs")
  .option("--kv <type>", "f32, f16, bf16, int8", "f16")
  .option("--activations <type>", "int8 or f32", "int8")
  .action(fidelity);

program
  .command("memory")
  .description("peak resident memory of a server whose pool is full, and what it is made of")
  .addOption(model())
  .option("--tokens <n>", "tokens of the pool", Number, 32_768)
  .option("--kv <type>", "f32, f16, bf16, int8", "f16")
  .addOption(compare())
  .addOption(gguf())
  .option("--peer-tokens <n>", "that a peer computes of those it reserves; absent: all", Number)
  .action((options) => (options.compare ? memoryCompare(options) : memory(options)));

program
  .command("soak")
  .description("many bad clients, a tiny pool and a faulty runner; everything accounted for at the end")
  .option("--minutes <n>", "how long", Number, 30)
  .option("--seed <n>", "of clients and faults", Number, 1)
  .option("--clients <n>", "at the same time", Number, 32)
  .action(soak);

program
  .command("agent")
  .description("a task that does not fit its window, by an agent that compacts: a row per turn")
  .addOption(model())
  .addOption(new Option("--harness <name>", "pca or react").choices(["pca", "react"]).default("pca"))
  .option("--window <tokens>", "of the run", Number, 8192)
  .option("--nudge <share>", "part of the window from which it is asked to compact; 0: never", Number, 0.6)
  .option("--no-force", "ask only")
  .option("--temperature <number>", "of its answers", Number, 0.3)
  .option("--seed <n>", "of the reports and the sampling", Number, 7)
  .option("--reports <n>", "up to 12; half of those fit the window", Number, 12)
  .option("--turns <n>", "most that it may take", Number, 60)
  .option("--keep <folder>", "keeps workspace, store and exported run there")
  .action(agent);

await program.parseAsync();
