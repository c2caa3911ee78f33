// npm run bench -- fidelity: what reuse costs in quality. The same compacted conversation in every arm, scored along
// what the oracle (a cold prefill of the new context) says next; facts asked for; compactions in a chain. Every
// arm of a conversation is kept as a JSON line as soon as it is measured, and the tables are made from those lines, so that
// runs can be interrupted and combined. README.md explains the tables.

import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Command, Option } from "commander";
import type { Manifest } from "../../models/manifest.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { KvType } from "../../src/engine/addon.ts";
import { ggufFolders, threads } from "../engine/engine.ts";
import { TransformersPeer } from "../peers/transformers.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf, openBenchRunner } from "../support/open-model.ts";
import {
  activationsOption,
  ggufOption,
  kvOption,
  modelOption,
  numbers,
  prefillCacheOptions,
  withPrefillCache,
} from "../support/options.ts";
import { sourceFile } from "../support/weights-read.ts";
import { type Arm, arms } from "./arms.ts";
import { type ChainRound, chain } from "./chain.ts";
import { measureTransformers, type TransformersComparison } from "./compare-transformers.ts";
import type { Shape } from "./conversation.ts";
import { readCorpus, readTexts } from "./corpus.ts";
import { type Measured, measure } from "./measure.ts";
import { PrefillCache } from "./prefill-cache.ts";
import { prepareConversation } from "./prepared-conversation.ts";
import { printTables } from "./tables.ts";
import { ModelText } from "./text.ts";

export interface FidelityOptions {
  readonly model: readonly string[];
  readonly arms?: readonly string[];
  readonly seeds: readonly number[];
  /** Tokens of a tool's result: least, most. */
  readonly results: readonly number[];
  readonly chain: number;
  readonly kv: string;
  readonly activations: string;
  /** Folders whose files the tool reads, instead of the frozen texts. */
  readonly texts?: readonly string[];
  /** Folder for prefills and answers: arms that have a line already are passed over. */
  readonly prefillCache?: string;
  /** The same arms on the same tokens by another engine; gguf: folders of the file that the model was made from. */
  readonly compare?: "transformers";
  readonly gguf: readonly string[];
  /** Nothing is measured: the tables of this file. */
  readonly tables?: string;
}

/** One line of the file. */
export interface ScoreLine {
  readonly label: string;
  readonly at: string;
  readonly machine: ReturnType<typeof thisMachine>;
  /** That computed `scores`; absent: ours. */
  readonly engine?: string;
  readonly scores?: Measured;
  readonly link?: ChainRound;
}

/** The lines of one model. */
interface Lines {
  readonly keep: (what: Pick<ScoreLine, "engine" | "scores" | "link">) => void;
  readonly has: (engine: string | undefined, scene: string, arm: string) => boolean;
}

/** Cells of a resident conversation, its compacted forms and what is asked behind them. */
const poolTokens = 28_672;

const results = () => join(packageRoot(), "bench", "results");

export async function fidelity(options: FidelityOptions): Promise<void> {
  if (options.tables !== undefined) return printTables(linesOf(options.tables));
  const chosen = choose(options.arms);
  mkdirSync(results(), { recursive: true });
  const file = join(results(), "fidelity.jsonl");
  const machine = thisMachine();
  const earlier = options.prefillCache !== undefined && existsSync(file) ? linesOf(file) : [];
  for (const name of options.model) {
    const label = labelOf(name, options);
    const own = earlier.filter((line) => line.label === label);
    const lines: Lines = {
      keep(what) {
        const line = { label, at: new Date().toISOString(), machine, ...what };
        appendFileSync(file, `${JSON.stringify(line)}\n`);
      },
      has: (engine, scene, arm) =>
        own.some((line) => line.engine === engine && line.scores?.scene === scene && line.scores.arm === arm),
    };
    const { runner, manifest } = await openBenchRunner(folderOf(name), {
      tokens: poolTokens,
      kvType: options.kv as KvType,
      activations: options.activations as "int8" | "f32",
    });
    const prefills = new PrefillCache(
      runner,
      `${manifest.digest} ${options.activations} ${options.kv}`,
      options.prefillCache,
    );
    let comparison: TransformersComparison | undefined;
    try {
      comparison = options.compare && (await openBeside(manifest, options));
      await measureModel(prefills, new ModelText(folderOf(name)), options, chosen, lines, comparison);
    } finally {
      await comparison?.peer.stop();
      await runner.close();
    }
  }
  const labels = options.model.map((name) => labelOf(name, options));
  printTables(linesOf(file).filter(({ label }) => labels.includes(label)));
}

async function openBeside(manifest: Manifest, options: FidelityOptions): Promise<TransformersComparison> {
  const gguf = await sourceFile(manifest, ggufFolders(options.gguf));
  const { sha256 } = manifest.source;
  const { vocab } = manifest.shapes;
  const peer = await TransformersPeer.start({
    gguf,
    sha256,
    threads: threads(),
    vocab,
    keep: options.prefillCache,
  });
  // Eight bits differ by some 2e-4 from float32, another model by much more than 0.01.
  const exact = options.activations === "f32" && options.kv === "f32";
  return { peer, bound: exact ? 1e-5 : 0.01 };
}

function labelOf(name: string, { activations, kv, results, texts }: FidelityOptions): string {
  const kind = texts === undefined ? "" : ` texts=${texts.join(",")}`;
  return `${name} activations=${activations} kv=${kv} results=${results.join("-")}${kind}`;
}

async function measureModel(
  prefills: PrefillCache,
  text: ModelText,
  options: FidelityOptions,
  chosen: readonly Arm[],
  lines: Lines,
  comparison: TransformersComparison | undefined,
): Promise<void> {
  const [least, most] = options.results as [number, number];
  const texts = options.texts === undefined ? readCorpus() : readTexts(options.texts);
  for (const seed of options.seeds) {
    const shape: Shape = {
      seed,
      exchanges: 11,
      removed: { start: 1, end: 7 },
      resultTokens: { least, most },
      needlesPerKind: 1,
      texts,
      countOf: (some) => text.countOf(some),
    };
    const scene = await prepareConversation(prefills, text, shape);
    const done = (engine?: string) => (arm: string) => lines.has(engine, scene.name, arm);
    for await (const scores of measure(prefills, text, scene, chosen, done())) lines.keep({ scores });
    if (comparison) {
      const { engine } = comparison.peer;
      for await (const scores of measureTransformers(
        comparison,
        prefills,
        text,
        scene,
        chosen,
        done(engine),
      )) {
        lines.keep({ engine, scores });
      }
    }
    prefills.runner.release(scene.resident);
  }
  if (options.chain <= 0) return;
  for await (const link of chain(prefills.runner, text, options.chain, 3)) {
    lines.keep({ link });
    process.stderr.write(`chain round ${link.round}, ${link.arm}\n`);
  }
}

/** The oracle is always among them. */
function choose(names: readonly string[] | undefined): readonly Arm[] {
  const unknown = names?.find((name) => !arms.some((arm) => arm.name === name));
  if (unknown !== undefined) {
    const known = arms.map(({ name }) => `"${name}"`).join(", ");
    throw new Error(`There is no arm "${unknown}". Arms: ${known}.`);
  }
  return arms.filter(({ name }, index) => index === 0 || (names?.includes(name) ?? true));
}

function linesOf(file: string): ScoreLine[] {
  const lines = readFileSync(file, "utf8").trim().split("\n");
  return lines.map((line) => JSON.parse(line) as ScoreLine);
}

export const fidelityCommand = fidelityOptions(new Command("fidelity"))
  .description("quality after a compaction with reuse and repair, against a cold prefill")
  .action((options) => fidelity(withPrefillCache(options)));

function fidelityOptions(command: Command): Command {
  command
    .addOption(modelOption())
    .option("--arms <names...>", "arms to measure (none, the oracle, always runs); default: all")
    .option("--seeds <numbers>", "one conversation per seed", numbers, [0, 1, 2, 3])
    .option("--results <least,most>", "tokens of a tool result", numbers, [250, 900])
    .option(
      "--texts <folders...>",
      "tools return parts of the files in these folders, instead of the corpus",
    );
  for (const option of prefillCacheOptions(
    "keep prefills and answers in this folder; skip arms already measured",
  )) {
    command.addOption(option);
  }
  return command
    .option("--chain <rounds>", "consecutive compactions; 0: none", Number, 20)
    .addOption(
      new Option("--compare <engine>", "the same arms on the same tokens by another engine").choices([
        "transformers",
      ]),
    )
    .addOption(ggufOption())
    .option("--tables <file>", "print the tables of earlier results; measure nothing")
    .addOption(kvOption())
    .addOption(activationsOption());
}
