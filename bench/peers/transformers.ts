// PyTorch as a second opinion: transformers on the same GGUF file, float32, in a process of its own
// (transformers/driver.py), which gets tokens and splices and returns its distributions. Not a peer engine: nothing
// of it is timed. Its environment is made by scripts/peers transformers.
import { join } from "node:path";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { Splice } from "../../src/engine/job.ts";
import { transformersPython } from "./peers-folder.ts";
import { PipeProcess } from "./pipe-process.ts";

export interface TransformersOptions {
  /** Path of the weights, and what is in that file. */
  readonly gguf: string;
  readonly sha256: string;
  readonly threads: number;
  /** Tokens of the vocabulary: rows of another length cannot be compared. */
  readonly vocab: number;
  /** Folder for cold prefills, if they are kept. */
  readonly keep: string | undefined;
}

export interface PeerReading {
  readonly prompt: Int32Array;
  readonly text: Int32Array;
}

/** Place by place along one text. */
export interface Looked {
  readonly likeliest: readonly number[];
  /** Of the text's own tokens. */
  readonly logprobs: readonly number[];
  /** KL(the peer's oracle ‖ this) in nats. */
  readonly divergences: readonly number[];
}

/** Where cells come from: leading ones of a cold prefill, then edit after edit. */
export interface PeerRecipe {
  readonly from: "resident" | "oracle";
  readonly keep: number;
  readonly edits: readonly (readonly Splice[])[];
  readonly chunk: number;
  /** False: keys of survivors stay as they are. */
  readonly turned: boolean;
}

interface Answer {
  readonly computed: number;
  readonly seen: readonly Looked[];
}

/** One conversation at a time: hold, oracle, arms. Stop it. */
export class TransformersPeer {
  #readings: readonly PeerReading[] = [];

  private constructor(
    private readonly process: PipeProcess,
    /** Versions and arithmetic. */
    readonly engine: string,
  ) {}

  static async start({ gguf, sha256, threads, vocab, keep }: TransformersOptions): Promise<TransformersPeer> {
    const driver = join(packageRoot(), "bench/peers/transformers/driver.py");
    const words = [driver, gguf, sha256, String(threads), ...(keep === undefined ? [] : [keep])];
    type Ready = { readonly ready: string; readonly vocab: number };
    const { process, ready } = await PipeProcess.start<Ready>(transformersPython(), words);
    if (ready.vocab === vocab) return new TransformersPeer(process, ready.ready);
    await process.stop();
    throw new Error(
      `transformers reads ${ready.vocab} tokens of a vocabulary in ${gguf}; here are ${vocab}.`,
    );
  }

  /** The resident conversation, cold. */
  async hold(tokens: Int32Array): Promise<void> {
    expectComputed(await this.process.ask<Answer>({ do: "hold", tokens: Array.from(tokens) }), tokens.length);
  }

  /**
   * What arms are compared with from now on, along these readings. `ours` is a file of float32 logprobs, a row a
   * token: then the divergences are KL(the peer's oracle ‖ those).
   */
  async oracle(
    tokens: Int32Array,
    readings: readonly PeerReading[],
    ours?: string,
  ): Promise<readonly Looked[]> {
    this.#readings = readings;
    const plain = readings.map(({ prompt, text }) => ({
      prompt: Array.from(prompt),
      text: Array.from(text),
    }));
    return this.#look({ do: "oracle", tokens: Array.from(tokens), readings: plain, ours }, tokens.length);
  }

  async arm(recipe: PeerRecipe): Promise<readonly Looked[]> {
    const edits = recipe.edits.map((splices) =>
      splices.map(({ start, end, tokens }) => ({ start, end, tokens: Array.from(tokens) })),
    );
    const computed = edits.flat().reduce((sum, { tokens }) => sum + tokens.length, 0);
    return this.#look({ ...recipe, do: "arm", edits }, computed);
  }

  stop(): Promise<void> {
    return this.process.stop();
  }

  async #look(question: object, computed: number): Promise<readonly Looked[]> {
    const answer = await this.process.ask<Answer>(question);
    expectComputed(answer, computed);
    const complete = this.#readings.every(({ text }, index) => {
      const { likeliest, logprobs, divergences } = answer.seen[index] ?? nothing;
      const rows = [likeliest, logprobs, divergences];
      return rows.every((row) => row.length === text.length && row.every(Number.isFinite));
    });
    if (complete && answer.seen.length === this.#readings.length) return answer.seen;
    throw new Error("transformers did not look at every index of every text.");
  }
}

const nothing: Looked = { likeliest: [], logprobs: [], divergences: [] };

/** Rejects a number that was measured on other input. */
function expectComputed({ computed }: Answer, count: number): void {
  if (computed !== count) throw new Error(`transformers computed ${computed} tokens and not ${count}.`);
}
