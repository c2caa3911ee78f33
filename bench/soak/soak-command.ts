// npm run bench -- soak: the server under many bad clients and a faulty runner, for as long as asked. Anything
// wrong is a sentence on standard error and exit code 1; the row says how much was done meanwhile.
import { Command } from "commander";
import { packageRoot } from "../../src/cli/package-root.ts";
import { thisMachine } from "../support/machine.ts";
import { Report } from "../support/results.ts";
import { soak as run } from "./soak.ts";

export async function soak(options: {
  readonly minutes: number;
  readonly seed: number;
  readonly clients: number;
}): Promise<void> {
  const report = new Report("soak", thisMachine(), packageRoot());
  const { minutes, seed, clients } = options;
  const size = { cacheTokens: 4096, replays: Math.ceil(200 * Math.min(minutes, 10)) };
  const outcome = await run({ seconds: minutes * 60, seed, clients, ...size });
  const { counts, errors, faults, bills, serverCounts, replayed, heap, resident, wrongs } = outcome;
  const words = (numbers: Readonly<Record<string, number>>) =>
    Object.entries(numbers)
      .map(([name, count]) => `${name} ${count}`)
      .join(", ");
  const mebibytes = (range: readonly number[]) =>
    range.map((bytes) => (bytes / 2 ** 20).toFixed(0)).join(" to ");
  report.add({
    condition: `${clients} clients, ${minutes} min, seed ${seed}, pool ${size.cacheTokens} tokens`,
    ...counts,
    errors: words(errors),
    faults: words(faults),
    prompts: words(bills),
    evictions: serverCounts.evictions,
    "disk hits": serverCounts.diskHits,
    preemptions: serverCounts.preemptions,
    repaired: serverCounts.repairedTokens,
    replayed,
    "heap MiB": mebibytes(heap),
    "resident MiB": mebibytes(resident),
    wrong: wrongs.length,
  });
  report.print();
  for (const sentence of wrongs.slice(0, 50)) process.stderr.write(`soak: ${sentence}\n`);
  if (wrongs.length > 0) process.exitCode = 1;
}

export const soakCommand = new Command("soak")
  .description("many misbehaving clients, a tiny pool and a faulty runner; checks that nothing leaks")
  .option("--minutes <n>", "duration", Number, 30)
  .option("--seed <n>", "seed of clients and faults", Number, 1)
  .option("--clients <n>", "concurrent clients", Number, 32)
  .action(soak);
