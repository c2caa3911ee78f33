// scripts/regress A B: has the second commit become faster or slower than the first? Both are built side by side
// and run the same bench in turn, A B B A …, each with its own bench code; printed are the ratio of each row's
// medians, its spread, and whether the difference is beyond the noise. It gates nothing: timings inform.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import { pairedRatio, verdictOn } from "./ratio.ts";
import { isRate, type Measured, measuredIn } from "./rows.ts";
import { say, Tree } from "./tree.ts";

interface Options {
  readonly bench: readonly string[];
  readonly rounds: number;
  readonly addon?: string;
  readonly modelsA?: string;
  readonly modelsB?: string;
}

const spaces = (text: string) => text.split(" ").filter(Boolean);

const program = new Command("scripts/regress")
  .description(
    "Compares two commits by a bench, in turn. Needs no network when their lockfiles are this one's.",
  )
  .argument("<a>", "a commit, such as HEAD~1")
  .argument("<b>", "another, such as HEAD")
  .option("--bench <words>", "as behind `npm run bench --`", spaces, spaces("engine --quick --repeat 1"))
  .option("--rounds <n>", "runs of each side; under five nothing is said about noise", Number, 6)
  .option("--addon <file>", "for both sides, instead of building: when only TypeScript differs")
  .option("--models-a <folder>", "models of the first commit; default as configured")
  .option("--models-b <folder>", "models of the second, where their format has changed")
  .action(regress);
await program.parseAsync().catch((cause: Error) => {
  say(cause.message);
  process.exitCode = 1;
});

async function regress(a: string, b: string, options: Options): Promise<void> {
  const root = packageRoot();
  const trees: Tree[] = [];
  const removeAll = () => {
    for (const tree of trees) tree.remove();
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      removeAll();
      process.exit(130);
    });
  }
  try {
    for (const revision of [a, b]) trees.push(Tree.checkOut(root, revision, options.addon));
    const sides = await measureInTurn(trees, options);
    print(trees, sides);
  } finally {
    removeAll();
  }
}

/** Per side and round what was measured. */
async function measureInTurn(trees: readonly Tree[], options: Options): Promise<Measured[][]> {
  const sides: Measured[][] = trees.map(() => []);
  const models = [options.modelsA, options.modelsB];
  for (let round = 0; round < options.rounds; round++) {
    for (const side of round % 2 === 0 ? [0, 1] : [1, 0]) {
      const { commit, folder } = trees[side]!;
      say(`round ${round + 1} of ${options.rounds}: ${"AB"[side]} (${commit})`);
      sides[side]!.push(await runBench(folder, options.bench, models[side]));
    }
  }
  return sides;
}

async function runBench(folder: string, bench: readonly string[], models?: string): Promise<Measured> {
  const results = join(folder, "bench/results");
  rmSync(results, { recursive: true, force: true });
  const child = spawn("npx", ["tsx", "bench/main.ts", ...bench], {
    cwd: folder,
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, ...(models && { POCKET_CACHE: models }) },
  });
  let said = "";
  child.stderr.on("data", (bytes: Buffer) => (said += bytes.toString()));
  const [status] = await once(child, "close");
  if (status !== 0) throw new Error(`bench ${bench.join(" ")} failed in ${folder}:\n${said.slice(-2000)}`);
  return measuredIn(results);
}

function print(trees: readonly Tree[], [first, second]: Measured[][]): void {
  const [a, b] = trees.map(({ commit }) => commit);
  const names = [...new Set([...first!, ...second!].flatMap((round) => [...round.keys()]))];
  const of = (side: Measured[], name: string) => side.map((round) => round.get(name));
  process.stdout.write(`A ${a}, B ${b}\n\n| row | B / A | 95 % | rounds | B is |\n|---|--:|---|--:|---|\n`);
  for (const name of names) {
    const pairs = of(first!, name).map((value, round) => [value, second![round]?.get(name)] as const);
    const whole = pairs.filter((pair): pair is readonly [number, number] =>
      pair.every((one) => one !== undefined),
    );
    if (whole.length === 0) {
      process.stdout.write(`| ${name} | – | – | 0 | measured on one side only |\n`);
      continue;
    }
    const ratio = pairedRatio(
      whole.map(([value]) => value),
      whole.map(([, value]) => value),
    );
    const verdict = verdictOn(ratio, isRate(name));
    const cells = [
      ratio.ratio.toFixed(3),
      `${ratio.low.toFixed(3)} … ${ratio.high.toFixed(3)}`,
      ratio.rounds,
      verdict,
    ];
    process.stdout.write(`| ${name.replaceAll("|", "·")} | ${cells.join(" | ")} |\n`);
  }
}
