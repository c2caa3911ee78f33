// A long prompt that nobody has seen, over the real server: time until its first token, and the most memory the
// server ever had resident, weights and pool included. One repetition by default, since a peer may take minutes.
import { takeTurns } from "../engine/peer-engine.ts";
import { text } from "../engine/rows.ts";
import { amongRivals, type Rival, type RivalOptions } from "../peers/peer-server.ts";
import { median, spread } from "../support/samples.ts";

export interface ColdOptions extends RivalOptions {
  readonly tokens: number;
  readonly repeat: number;
}

export async function cold(options: ColdOptions): Promise<void> {
  const size = { context: options.tokens + 512, streams: 1 };
  await amongRivals("cold", options, size, async (report, labels, rivals, vocab) => {
    let salt = 1;
    const run = (rival: Rival) => async () => {
      const prompt = text(options.tokens, salt++, vocab);
      const begin = performance.now();
      await rival.complete(prompt, 1, 1);
      return (performance.now() - begin) / 1000;
    };
    const seconds = await takeTurns(rivals.map(run), options.repeat, { warm: false });
    for (const [place, rival] of rivals.entries()) {
      report.add({
        ...labels,
        row: `cold prompt of ${options.tokens}`,
        who: rival.name,
        "first token s": median(seconds[place]!),
        ...spread(seconds[place]!),
        "peak MiB": rival.peakBytes() / 2 ** 20,
      });
    }
  });
}
