// ONNX Runtime GenAI as a peer engine: its own generator in a separate process (genai/driver.py), driven by token
// ids, timed inside that process. It reads the file's weights requantised to four bits, each matrix alike, and
// keeps keys and values in float32: its CPU build has no other. Built by scripts/peers genai FILE.gguf.
import { join } from "node:path";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { PeerEngine } from "../engine/peer-engine.ts";
import { genaiModel, genaiPython } from "./peers-folder.ts";
import { PipeProcess } from "./pipe-process.ts";

export interface GenaiOptions {
  /** Path of the weights that the model was built from. */
  readonly gguf: string;
  /** Of that file; the built model must name the same. */
  readonly sha256: string;
  readonly threads: number;
  /** Tokens that it must be able to hold: cells for all of them are allocated at the start. */
  readonly context: number;
}

interface Answer {
  readonly seconds: number;
  readonly grown: number;
  readonly peakBytes: number | null;
}

export async function openGenai({ gguf, sha256, threads, context }: GenaiOptions): Promise<PeerEngine> {
  const driver = join(packageRoot(), "bench/peers/genai/driver.py");
  const { process, ready } = await PipeProcess.start<{ readonly ready: string }>(genaiPython(), [
    driver,
    genaiModel(gguf, sha256),
    String(threads),
    String(context),
  ]);
  let peakBytes = Number.NaN;
  const ask = async (question: object, grown: number) => {
    const answer = await process.ask<Answer>(question);
    peakBytes = answer.peakBytes ?? Number.NaN;
    if (answer.grown === grown) return answer.seconds;
    throw new Error(`ONNX Runtime GenAI computed ${answer.grown} tokens and not ${grown}.`);
  };
  const prefill = (before: readonly number[], added: readonly number[]) =>
    ask({ do: "prefill", context: before, added }, added.length + 1);
  return {
    name: `genai ${ready.ready}`,
    kv: "f32",
    weights: "int4 blocks of 32, activations int8",
    resident: (prompt) => prefill([], prompt),
    prefill,
    decode: (before, count) => ask({ do: "decode", context: before, count }, count),
    peakBytes: () => peakBytes,
    close: () => process.stop(),
  };
}
