// Peak resident memory of whole servers, ours beside a peer's, each built, in a process of its own and with cells for
// the same tokens reserved. Ours has computed all of them; the peer may have computed fewer, since it needs minutes:
// what it reserves it has touched by then, so that its figure is at most a few buffers short, never too high.
import { text } from "../engine/rows.ts";
import { type PeerServerOptions, withPeerServers } from "../peers/peer-server.ts";

export interface MemoryBesideOptions extends PeerServerOptions {
  /** Cells reserved. */
  readonly tokens: number;
  /** That the peer computes; absent: all. */
  readonly peerTokens?: number;
}

/** Of the cells, for the answer and for the edges of pages. */
const spare = 64;

export async function memoryCompare(options: MemoryBesideOptions): Promise<void> {
  const { tokens, peerTokens = tokens } = options;
  const size = { context: tokens, streams: 1 };
  await withPeerServers("memory", options, size, async (report, labels, servers, vocab) => {
    const counts = servers.map((_, place) => (place === 0 ? tokens : Math.min(tokens, peerTokens)) - spare);
    for (const [place, server] of servers.entries()) {
      await server.complete(text(counts[place]!, 1, vocab), 1, 1);
    }
    const ours = servers[0]!.peakBytes();
    for (const [place, server] of servers.entries()) {
      const peak = server.peakBytes();
      report.add({
        ...labels,
        row: `${tokens} cells reserved, ${counts[place]} computed`,
        who: server.name,
        "peak MiB": peak / 2 ** 20,
        ...(place > 0 && { "ours of it": ours / peak }),
      });
    }
  });
}
