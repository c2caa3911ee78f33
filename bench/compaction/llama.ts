// llama-server with --cache-reuse on the very token ids of our prompts. Its slot is saved after each prefill and
// restored in front of each measurement, so that every one begins with the whole conversation in its cache.
import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { LlamaServer, type LlamaTimings } from "../peers/llama.ts";
import { median, type Row } from "../support/results.ts";

export interface PeerPrompt {
  /** Says which condition it is. */
  readonly row: Row;
  readonly base: readonly number[];
  readonly edited: readonly number[];
  /** Tokens of the summary, for the peer's own ideal. */
  readonly inserted: number;
}

export interface PeerOptions {
  /** GGUF file of the same weights. */
  readonly gguf: string;
  /** Rising in length: a longer base begins like a shorter one. */
  readonly prompts: readonly PeerPrompt[];
  readonly repeat: number;
  readonly context: number;
  readonly add: (row: Row) => void;
}

export async function comparePeer({ gguf, prompts, repeat, context, add }: PeerOptions): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "pocket-peer-"));
  const server = await start(gguf, context + 2048, folder);
  try {
    for (const { row, base, edited, inserted } of prompts) {
      await server.complete(base, 1);
      await slot(server, "save");
      const measure = async (arm: string, prompt: readonly number[], rounds: number) => {
        const times: number[] = [];
        let timings: Pick<LlamaTimings, "cache_n" | "prompt_n"> = { cache_n: 0, prompt_n: 0 };
        for (let round = 0; round < rounds; round++) {
          const begin = performance.now();
          ({ timings } = await server.complete(prompt, 1));
          times.push(performance.now() - begin);
          await slot(server, "restore");
        }
        const [least, most] = [Math.min(...times), Math.max(...times)];
        const ms = { n: rounds, ms: median(times), "ms least": least, "ms most": most };
        const tokens = { prompt: prompt.length, kept: timings.cache_n, computed: timings.prompt_n };
        add({ ...row, arm, via: "http", ...ms, ...tokens });
      };
      // It computes nearly all of an edited prompt, which takes minutes when that is long.
      await measure("llama.cpp --cache-reuse 64", edited, edited.length > 4000 ? 1 : repeat);
      const held = base.slice(0, edited.length - inserted);
      const fresh = Array.from({ length: inserted }, (_, index) => 2000 + ((index * 37) % 20_000));
      await measure("llama.cpp appending", [...held, ...fresh], repeat);
    }
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

function start(gguf: string, context: number, folder: string): Promise<LlamaServer> {
  return LlamaServer.start({
    gguf,
    threads: cpus().length,
    context,
    kvType: "f16",
    flashAttention: false,
    words: ["--cache-reuse", "64", "--slot-save-path", folder],
  });
}

async function slot({ url }: LlamaServer, action: "save" | "restore"): Promise<void> {
  const response = await fetch(`${url}/slots/0?action=${action}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ filename: "base" }),
  });
  if (!response.ok) throw new Error(`llama-server cannot ${action} its slot: ${await response.text()}`);
}
