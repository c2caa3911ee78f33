// Streams together against one alone, over the real server: each stream a prompt of its own and as many tokens as
// asked for, sampled at temperature 1, so that no rival can guess them. Tokens of all answers over the time until
// the last has ended; reading the prompts is part of it.
import { takeTurns } from "../engine/peer-engine.ts";
import { text } from "../engine/rows.ts";
import { amongRivals, type Rival, type RivalOptions } from "../peers/peer-server.ts";
import { median, spread } from "../support/samples.ts";

export interface ThroughputOptions extends RivalOptions {
  readonly streams: number;
  readonly tokens: number;
  readonly repeat: number;
}

const promptTokens = 64;

export async function throughput(options: ThroughputOptions): Promise<void> {
  const { streams, tokens, repeat } = options;
  const size = { context: promptTokens + tokens + 64, streams };
  await amongRivals("throughput", options, size, async (report, labels, rivals, vocab) => {
    let salt = 1;
    const run = (rival: Rival, count: number) => async () => {
      const begin = performance.now();
      const seeds = Array.from({ length: count }, () => salt++);
      const ask = (seed: number) => rival.complete(text(promptTokens, seed, vocab), tokens, seed);
      const came = (await Promise.all(seeds.map(ask))).reduce((sum, one) => sum + one, 0);
      return came / ((performance.now() - begin) / 1000);
    };
    const counts = [1, streams];
    const runs = counts.flatMap((count) => rivals.map((rival) => run(rival, count)));
    const rates = await takeTurns(runs, repeat);
    for (const [place, rival] of rivals.entries()) {
      const [alone, together] = [rates[place]!, rates[rivals.length + place]!];
      const add = (count: number, samples: readonly number[]) => ({
        ...labels,
        row: `${count} x ${tokens} tokens behind ${promptTokens}`,
        who: rival.name,
        "tokens/s": median(samples),
        ...spread(samples),
      });
      report.add(add(1, alone));
      report.add({ ...add(streams, together), "times one": median(together) / median(alone) });
    }
  });
}
