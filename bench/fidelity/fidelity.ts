// npm run bench -- fidelity: what reuse costs in quality. The same compacted conversation in every arm, scored along
// what the oracle (a cold prefill of the new context) says next; facts asked for; compactions in a chain. Every
// arm of a conversation is kept as a JSON line as soon as it is measured, and the tables are made from those lines, so that
// runs can be interrupted and put together. README.md beside it says how to read them.
import { appendFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { packageRoot } from "../../src/commands/package-root.ts";
import type { KvType, Runner } from "../../src/engine/addon.ts";
import { thisMachine } from "../machine.ts";
import { folderOf, openBenchRunner } from "../open.ts";
import { type Arm, arms } from "./arms.ts";
import { chain, type Link } from "./chain.ts";
import type { Shape } from "./conversation.ts";
import { type Measured, measure } from "./measure.ts";
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
  /** Nothing is measured: the tables of this file. */
  readonly tables?: string;
}

/** One line of the file. */
export interface ScoreLine {
  readonly label: string;
  readonly at: string;
  readonly machine: ReturnType<typeof thisMachine>;
  readonly scores?: Measured;
  readonly link?: Link;
}

/** Cells of a resident conversation, its compacted forms and what is asked behind them. */
const poolTokens = 20_480;

const shapeOf = (seed: number, [least, most]: readonly number[], countOf: Shape["countOf"]): Shape => ({
  seed,
  exchanges: 11,
  removed: { start: 1, end: 7 },
  resultTokens: { least: least!, most: most! },
  needlesPerKind: 2,
  countOf,
});

export async function fidelity(options: FidelityOptions): Promise<void> {
  if (options.tables !== undefined) return printTables(linesOf(options.tables));
  const chosen = choose(options.arms);
  const folder = join(packageRoot(), "bench", "results");
  mkdirSync(folder, { recursive: true });
  const machine = thisMachine();
  const lines: ScoreLine[] = [];
  for (const name of options.model) {
    const label = `${name} activations=${options.activations} kv=${options.kv} results=${options.results.join("-")}`;
    const keep = (what: Pick<ScoreLine, "scores" | "link">) => {
      const line = { label, at: new Date().toISOString(), machine, ...what };
      lines.push(line);
      appendFileSync(join(folder, "fidelity.jsonl"), `${JSON.stringify(line)}\n`);
    };
    const { runner } = await openBenchRunner(folderOf(name), {
      tokens: poolTokens,
      kvType: options.kv as KvType,
      activations: options.activations as "int8" | "f32",
    });
    await measureModel(runner, new ModelText(folderOf(name)), options, chosen, keep);
    await runner.close();
  }
  printTables(lines);
}

async function measureModel(
  runner: Runner,
  text: ModelText,
  options: FidelityOptions,
  chosen: readonly Arm[],
  keep: (what: Pick<ScoreLine, "scores" | "link">) => void,
): Promise<void> {
  for (const seed of options.seeds) {
    const shape = shapeOf(seed, options.results, (some) => text.countOf(some));
    for await (const scores of measure(runner, text, shape, chosen)) keep({ scores });
  }
  if (options.chain <= 0) return;
  for await (const link of chain(runner, text, options.chain, 3)) {
    keep({ link });
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
  return arms.filter(({ name }, place) => place === 0 || (names?.includes(name) ?? true));
}

function linesOf(file: string): ScoreLine[] {
  const lines = readFileSync(file, "utf8").trim().split("\n");
  return lines.map((line) => JSON.parse(line) as ScoreLine);
}
