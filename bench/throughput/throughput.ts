// Streams together against one alone, over the real server: each stream a prompt of its own and as many tokens as
// asked for, sampled at temperature 1, so that no server can predict them. Tokens of all answers over the time until
// the last has ended; reading the prompts is part of it.
import { Command } from "commander";
import { alternate } from "../engine/peer-engine.ts";
import { text } from "../engine/rows.ts";
import { type PeerServer, type PeerServerOptions, withPeerServers } from "../peers/peer-server.ts";
import { compareOption, ggufOption, kvOption, modelOption, repeatOption } from "../support/options.ts";
import { median, spread } from "../support/samples.ts";

export interface ThroughputOptions extends PeerServerOptions {
  readonly streams: number;
  readonly tokens: number;
  readonly repeat: number;
}

const promptTokens = 64;

export async function throughput(options: ThroughputOptions): Promise<void> {
  const { streams, tokens, repeat } = options;
  const size = { context: promptTokens + tokens + 64, streams };
  await withPeerServers("throughput", options, size, async (report, labels, servers, vocab) => {
    let salt = 1;
    const run = (server: PeerServer, count: number) => async () => {
      const begin = performance.now();
      const seeds = Array.from({ length: count }, () => salt++);
      const ask = (seed: number) => server.complete(text(promptTokens, seed, vocab), tokens, seed);
      const came = (await Promise.all(seeds.map(ask))).reduce((sum, one) => sum + one, 0);
      return came / ((performance.now() - begin) / 1000);
    };
    const counts = [1, streams];
    const runs = counts.flatMap((count) => servers.map((server) => run(server, count)));
    const rates = await alternate(runs, repeat);
    for (const [index, server] of servers.entries()) {
      const [alone, together] = [rates[index]!, rates[servers.length + index]!];
      const add = (count: number, samples: readonly number[]) => ({
        ...labels,
        row: `${count} x ${tokens} tokens behind ${promptTokens}`,
        who: server.name,
        "tokens/s": median(samples),
        ...spread(samples),
      });
      report.add(add(1, alone));
      report.add({ ...add(streams, together), "times one": median(together) / median(alone) });
    }
  });
}

export const throughputCommand = new Command("throughput")
  .description("concurrent streams against one stream, over the real server")
  .addOption(modelOption())
  .addOption(kvOption())
  .option("--streams <n>", "number of concurrent streams", Number, 8)
  .option("--tokens <n>", "new tokens of each answer", Number, 128)
  .addOption(compareOption())
  .addOption(ggufOption())
  .addOption(repeatOption(5))
  .action(throughput);
