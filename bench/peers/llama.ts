// llama.cpp as a peer engine: its server on one GGUF file, driven by token ids, so that what is reused and what is
// computed is known exactly; the times are the server's own, without HTTP. Prefill and decode at a depth are
// measured on a resident prompt, as ours are on a fork. Built by scripts/peers.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { PeerEngine } from "../engine/peer-engine.ts";
import { llamaBinary } from "./peers-folder.ts";
import { ServerProcess } from "./server-process.ts";

export type LlamaKvType = "f16" | "q8_0";

export interface LlamaOptions {
  /** Path of the weights. */
  readonly gguf: string;
  readonly threads: number;
  /** Tokens of one slot. */
  readonly context: number;
  /** Of keys and values; q8_0 wants flash attention. */
  readonly kvType: LlamaKvType;
  readonly flashAttention: boolean;
  /** `-np`; default 1. */
  readonly slots?: number;
  /** Further words of the command line, such as `--cache-reuse 64`. */
  readonly words?: readonly string[];
}

/** What the server says about one request; times in milliseconds. */
export interface LlamaTimings {
  readonly cache_n: number;
  readonly prompt_n: number;
  readonly prompt_ms: number;
  readonly predicted_n: number;
  readonly predicted_ms: number;
}

export interface LlamaAnswer {
  readonly content: string;
  readonly tokens_predicted: number;
  readonly timings: LlamaTimings;
}

/** A running llama-server. Stop it. */
export class LlamaServer {
  private constructor(private readonly process: ServerProcess) {}

  static async start(options: LlamaOptions): Promise<LlamaServer> {
    const file = llamaBinary("llama-server");
    return new LlamaServer(
      await ServerProcess.start((port) => ({
        file,
        words: [...serverWords(options), "--host", "127.0.0.1", "--port", String(port)],
        readyPath: "/health",
      })),
    );
  }

  get url(): string {
    return this.process.url;
  }

  /** `count` tokens behind `prompt`, greedy, never ended by an end token unless `body` says otherwise. */
  complete(prompt: readonly number[] | string, count: number, body: object = {}): Promise<LlamaAnswer> {
    return this.process.post("/completion", {
      prompt,
      n_predict: count,
      samplers: ["top_k"],
      top_k: 1,
      ignore_eos: true,
      cache_prompt: true,
      ...body,
    });
  }

  peakBytes(): number {
    return this.process.peakBytes();
  }

  stop(): Promise<void> {
    return this.process.stop();
  }
}

function serverWords(options: LlamaOptions): string[] {
  const slots = options.slots ?? 1;
  const threads = String(options.threads);
  return [
    ...["-m", options.gguf, "-t", threads, "-tb", threads, "-np", String(slots)],
    ...["-c", String(options.context * slots), "-ctk", options.kvType, "-ctv", options.kvType],
    ...["-fa", options.flashAttention ? "on" : "off", "-ngl", "0", "--cache-ram", "0", "--no-webui"],
    ...(options.words ?? []),
  ];
}

/** A server with one slot, for the `engine` bench. */
export async function openLlama(options: LlamaOptions): Promise<PeerEngine> {
  const server = await LlamaServer.start(options);
  return {
    name: `llama.cpp fa=${options.flashAttention ? "on" : "off"}`,
    kv: options.kvType,
    resident: (tokens) => server.complete(tokens, 1).then(({ timings }) => timings.prompt_ms / 1000),
    async prefill(context, added) {
      const { timings } = await server.complete([...context, ...added], 1);
      expectComputed(timings, added.length);
      return timings.prompt_ms / 1000;
    },
    async decode(context, count) {
      // The first token comes from the prompt's logits; the server's time begins behind it.
      const { timings } = await server.complete(context, count + 1);
      if (timings.predicted_n !== count + 1) throw new Error(`it made ${timings.predicted_n} tokens`);
      return timings.predicted_ms / 1000;
    },
    peakBytes: () => server.peakBytes(),
    close: () => server.stop(),
  };
}

/** Rejects a number that was measured on other input. */
function expectComputed({ prompt_n, cache_n }: LlamaTimings, count: number): void {
  if (prompt_n === count) return;
  throw new Error(
    `llama-server computed ${prompt_n} tokens of the prompt and not ${count}; reused ${cache_n}.`,
  );
}

export interface LlamaBenchRow {
  readonly row: string;
  /** Tokens a second, one a repetition. */
  readonly samples: readonly number[];
}

/** llama-bench at depth 0: the peer's own measurement, without sampling or serving. */
export async function llamaBench(
  options: Omit<LlamaOptions, "context" | "slots" | "words">,
  counts: { readonly prefill: number; readonly decode: number; readonly repetitions: number },
): Promise<LlamaBenchRow[]> {
  const words = [
    ...["-m", options.gguf, "-t", String(options.threads), "-r", String(counts.repetitions), "-o", "json"],
    ...["-ctk", options.kvType, "-ctv", options.kvType, "-fa", options.flashAttention ? "1" : "0"],
    ...["-p", String(counts.prefill), "-n", String(counts.decode), "-ngl", "0"],
  ];
  const { stdout } = await promisify(execFile)(llamaBinary("llama-bench"), words, { maxBuffer: 2 ** 24 });
  return rowsOf(stdout);
}

/** Of llama-bench's JSON. */
export function rowsOf(json: string): LlamaBenchRow[] {
  const tests = JSON.parse(json) as { n_prompt: number; n_gen: number; samples_ts: number[] }[];
  return tests.map(({ n_prompt, n_gen, samples_ts }) => ({
    row: n_gen > 0 ? `tg${n_gen}` : `pp${n_prompt}`,
    samples: samples_ts,
  }));
}
