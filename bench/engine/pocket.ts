// Our runner in the `engine` bench: the context is one sequence, and every measurement works on
// a fork of its start, so that nothing is computed twice and nothing is left behind. No server in between.
import type { Manifest } from "../../models/manifest.ts";
import type { KvType, Runner, SequenceId } from "../../src/engine/addon.ts";
import { greedy } from "../../src/engine/job.ts";
import { openBenchRunner } from "../support/open-model.ts";
import type { PeerEngine } from "./peer-engine.ts";

/** Tokens of a step while a prompt is read, as the server's `step_tokens` has it. */
const chunk = 512;

export interface PocketEngine extends PeerEngine {
  readonly manifest: Manifest;
  /** Bytes of keys and values of one token. */
  readonly cellBytes: number;
  /** Seconds for `count` greedy tokens of each of `streams` forks of the context, one step for all. */
  together(context: readonly number[], count: number, streams: number): Promise<number>;
}

export interface PocketChoice {
  readonly folder: string;
  /** Longest context, and what comes behind it. */
  readonly tokens: number;
  readonly kvType: KvType;
  readonly activations: "int8" | "f32";
}

export async function openPocket(choice: PocketChoice): Promise<PocketEngine> {
  const { runner, manifest } = await openBenchRunner(choice.folder, choice);
  const context = runner.newSequence();
  const { kvBytes, pages, pageSize } = runner.describe();
  const fork = (tokens: readonly number[]) => runner.fork(context, tokens.length);
  const decode = (tokens: readonly number[], count: number, streams: number) =>
    decodeTogether(
      runner,
      Array.from({ length: streams }, () => fork(tokens)),
      count,
    );
  return {
    name: "pocket",
    kv: choice.kvType,
    manifest,
    cellBytes: kvBytes / (pages * pageSize),
    resident: (prompt) => timed(() => read(runner, context, prompt)),
    async prefill(tokens, added) {
      const id = fork(tokens);
      const seconds = await timed(() => read(runner, id, added));
      runner.release(id);
      return seconds;
    },
    decode: (tokens, count) => decode(tokens, count, 1),
    together: decode,
    close: () => runner.close(),
  };
}

/** Appends the tokens and samples one behind them. */
async function read(runner: Runner, id: SequenceId, tokens: readonly number[]): Promise<void> {
  const { length } = runner.sequence(id);
  runner.splice(id, [{ start: length, end: length, count: tokens.length }]);
  const all = Int32Array.from(tokens);
  for (let at = 0; at < all.length; at += chunk) {
    const isLast = at + chunk >= all.length;
    const sample = { ...greedy, draw: 0, generatedFrom: length + all.length, top: 0 };
    await runner.step([{ sequence: id, tokens: all.subarray(at, at + chunk), ...(isLast && { sample }) }]);
  }
}

/** Seconds for `count` greedy tokens of each sequence; the sequences are released. */
async function decodeTogether(runner: Runner, ids: readonly SequenceId[], count: number): Promise<number> {
  let last = ids.map((_, index) => 200 + index);
  const seconds = await timed(async () => {
    for (let draw = 0; draw < count; draw++) {
      const entries = ids.map((sequence, index) => {
        const { length } = runner.sequence(sequence);
        runner.splice(sequence, [{ start: length, end: length, count: 1 }]);
        const sample = { ...greedy, draw, generatedFrom: 0, top: 0 };
        return { sequence, tokens: Int32Array.of(last[index]!), sample };
      });
      last = (await runner.step(entries)).outcomes.map(({ token }) => token);
    }
  });
  for (const id of ids) runner.release(id);
  return seconds;
}

async function timed(work: () => Promise<void>): Promise<number> {
  const begin = performance.now();
  await work();
  return (performance.now() - begin) / 1000;
}
