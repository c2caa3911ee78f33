// Keeps prefills and greedy answers on disk, keyed by their inputs, so that an interrupted run continues
// where it stopped instead of computing a conversation anew. Without a folder everything is computed. A prefill
// that comes back computes on bit for bit; what else could differ (model, activations, KV type) is part of the name.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import { generate, prefill, type Question } from "./cells.ts";

export class PrefillCache {
  readonly runner: Runner;
  readonly #condition: string;
  readonly #folder: string | undefined;

  /** `condition` names all that decides what is computed, but for the tokens. */
  constructor(runner: Runner, condition: string, folder: string | undefined) {
    this.runner = runner;
    this.#condition = condition;
    this.#folder = folder;
    if (folder !== undefined) mkdirSync(folder, { recursive: true });
  }

  /** A new sequence. */
  async prefill(tokens: Int32Array): Promise<SequenceId> {
    const file = this.#fileOf("kv", tokens);
    if (file !== undefined && existsSync(file)) return this.runner.load(file);
    const id = await prefill(this.runner, tokens);
    if (file !== undefined) await this.runner.save(id, file);
    return id;
  }

  /** As `speak`; `id` is cold and left as it was. */
  async speak(
    id: SequenceId,
    questions: readonly Question[],
    stopTokens: ReadonlySet<number>,
  ): Promise<Int32Array[]> {
    const before = this.runner.inspect(id).tokens;
    const asked = questions.flatMap(({ prompt, most }) => [Int32Array.of(most), prompt]);
    const file = this.#fileOf("json", before, ...asked);
    if (file !== undefined && existsSync(file)) {
      const kept = JSON.parse(readFileSync(file, "utf8")) as number[][];
      return kept.map((tokens) => Int32Array.from(tokens));
    }
    const answers = await generate(this.runner, id, questions, stopTokens);
    if (file !== undefined) writeFileSync(file, JSON.stringify(answers.map((tokens) => Array.from(tokens))));
    return answers;
  }

  #fileOf(suffix: string, ...parts: readonly Int32Array[]): string | undefined {
    if (this.#folder === undefined) return undefined;
    return join(this.#folder, `${digestOf(this.#condition, parts)}.${suffix}`);
  }
}

/** Of texts and tokens in this order; 24 hexadecimal digits. */
export function digestOf(text: string, parts: readonly Int32Array[]): string {
  const hash = createHash("sha256").update(text);
  for (const part of parts) {
    hash.update(`\n${part.length}\n`);
    hash.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
  }
  return hash.digest("hex").slice(0, 24);
}
