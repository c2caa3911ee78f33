// What the benches over HTTP measure, ours or another's: a running server on one file of weights that completes
// token ids and says how much memory it took.
import { type Manifest, readManifest } from "../../models/manifest.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import { ggufFolders, threads } from "../engine/engine.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf } from "../support/open-model.ts";
import { OwnServer } from "../support/own-server.ts";
import { Report } from "../support/results.ts";
import { sourceFile } from "../support/weights-read.ts";
import { LlamaServer } from "./llama.ts";

export interface PeerServer {
  readonly name: string;
  /**
   * Resolves with how many tokens came: sampled at temperature 1, by the seed, one a step. Nothing of the prompt is
   * reused.
   */
  complete(prompt: readonly number[], count: number, seed: number): Promise<number>;
  peakBytes(): number;
  stop(): Promise<void>;
}

export interface PeerServerOptions {
  readonly model: readonly string[];
  readonly kv: string;
  readonly compare?: string;
  readonly gguf: readonly string[];
}

export interface ServerSize {
  /** Tokens of one stream, answer included. */
  readonly context: number;
  readonly streams: number;
}

/** For every model of the options: opens the servers, ours first, measures, closes them; then prints. */
export async function withPeerServers(
  bench: string,
  options: PeerServerOptions,
  size: ServerSize,
  measure: (
    report: Report,
    labels: Readonly<Record<string, string>>,
    servers: readonly PeerServer[],
    vocab: number,
  ) => Promise<void>,
): Promise<void> {
  const report = new Report(bench, thisMachine(), packageRoot());
  for (const name of options.model) {
    const manifest = readManifest(folderOf(name));
    const labels = { model: manifest.id, weights: manifest.weights.format, kv: options.kv };
    const servers: PeerServer[] = [await openOwnServer(manifest, options.kv, size)];
    try {
      if (options.compare) servers.push(await openLlamaServer(manifest, options, size));
      await measure(report, labels, servers, manifest.shapes.vocab);
    } finally {
      for (const server of servers) await server.stop();
    }
  }
  report.print();
}

async function openOwnServer(
  { id, weights }: Manifest,
  kvType: string,
  size: ServerSize,
): Promise<PeerServer> {
  const server = await OwnServer.start({
    id,
    weights: weights.format,
    settings: {
      "cache.tokens": String(Math.ceil((size.context * size.streams) / 16) * 16 + 16 * size.streams),
      "cache.kv_type": kvType,
      "server.active": String(size.streams),
    },
  });
  return {
    name: "pocket",
    async complete(prompt, count, seed) {
      const body = { temperature: 1, seed, pocket: { reuse: "none", lookup: false } };
      const { usage, pocket } = await server.complete(prompt, count, body);
      if (pocket.kept > 0) throw new Error(`${pocket.kept} tokens of the prompt were reused`);
      return usage.completion_tokens;
    },
    peakBytes: () => server.peakBytes(),
    stop: () => server.stop(),
  };
}

async function openLlamaServer(
  manifest: Manifest,
  options: PeerServerOptions,
  size: ServerSize,
): Promise<PeerServer> {
  const server = await LlamaServer.start({
    gguf: await sourceFile(manifest, ggufFolders(options.gguf)),
    threads: threads(),
    context: size.context,
    kvType: options.kv === "int8" ? "q8_0" : "f16",
    flashAttention: true,
    slots: size.streams,
  });
  return {
    name: `llama-server fa=on -np ${size.streams}`,
    async complete(prompt, count, seed) {
      const body = { samplers: ["temperature"], temperature: 1, seed, cache_prompt: false };
      const { timings, tokens_predicted } = await server.complete(prompt, count, body);
      if (timings.cache_n > 0) throw new Error(`${timings.cache_n} tokens of the prompt were reused`);
      return tokens_predicted;
    },
    peakBytes: () => server.peakBytes(),
    stop: () => server.stop(),
  };
}
