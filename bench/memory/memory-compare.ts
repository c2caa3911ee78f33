// Peak resident memory of whole servers, ours and a peer's, each in its own process with cells for
// the same tokens reserved. Ours has computed all of them; the peer may have computed fewer, since it needs minutes:
// what it reserves it has touched by then, so that its figure is at most a few buffers short, never too high.
import { text } from "../engine/rows.ts";
import { type PeerServerOptions, withPeerServers } from "../peers/peer-server.ts";

export interface MemoryCompareOptions extends PeerServerOptions {
  /** Cells reserved. */
  readonly tokens: number;
  /** That the peer computes; absent: all. */
  readonly peerTokens?: number;
}

/** Of the cells, for the answer and for the edges of pages. */
const spare = 64;

export async function memoryCompare(options: MemoryCompareOptions): Promise<void> {
  const { tokens, peerTokens = tokens } = options;
  const size = { context: tokens, streams: 1 };
  await withPeerServers("memory", options, size, async (report, labels, servers, vocab) => {
    const counts = servers.map((_, index) => (index === 0 ? tokens : Math.min(tokens, peerTokens)) - spare);
    for (const [index, server] of servers.entries()) {
      await server.complete(text(counts[index]!, 1, vocab), 1, 1);
    }
    const ours = servers[0]!.peakBytes();
    for (const [index, server] of servers.entries()) {
      const peak = server.peakBytes();
      report.add({
        ...labels,
        row: `${tokens} cells reserved, ${counts[index]} computed`,
        who: server.name,
        "peak MiB": peak / 2 ** 20,
        ...(index > 0 && { "ours of it": ours / peak }),
      });
    }
  });
}
