// Raw speed of the runner, no server in between: prefill of 512 tokens at a depth, decode at a depth, eight
// streams in one step. Rows are named as llama-bench names its own (pp512 @ d8192, tg32 @ d8192).
import { packageRoot } from "../src/commands/package-root.ts";
import type { KvType, Runner, SequenceId } from "../src/engine/addon.ts";
import { greedy } from "../src/engine/job.ts";
import { thisMachine } from "./machine.ts";
import { folderOf, openBenchRunner } from "./open.ts";
import { median, Report } from "./report.ts";

export interface EngineBenchOptions {
  readonly model: readonly string[];
  readonly depths: readonly number[];
  readonly kv: string;
  readonly activations: string;
}

const chunk = 512;
const decoded = 32;
const streams = 8;
const repetitions = 5;

export async function engine(options: EngineBenchOptions): Promise<void> {
  const report = new Report("engine", thisMachine(), packageRoot());
  for (const name of options.model) {
    const tokens = Math.max(...options.depths) + chunk * (streams + 2);
    const { runner, manifest } = await openBenchRunner(folderOf(name), {
      tokens,
      kvType: options.kv as KvType,
      activations: options.activations as "int8" | "f32",
    });
    const label = `${manifest.id} weights=${manifest.weights.format} activations=${options.activations} kv=${options.kv}`;
    const context = runner.newSequence();
    for (const depth of options.depths.toSorted((a, b) => a - b)) {
      await grow(runner, context, depth);
      const prefills = await timesOf(repetitions, () => prefill(runner, runner.fork(context, depth)));
      report.add({
        row: `${label} pp${chunk} @ d${depth}`,
        "tokens/s": chunk / median(prefills),
        ...spread(prefills, chunk),
      });
      const decodes = await timesOf(repetitions, () => decode(runner, [runner.fork(context, depth)]));
      report.add({
        row: `${label} tg${decoded} @ d${depth}`,
        "tokens/s": decoded / median(decodes),
        ...spread(decodes, decoded),
      });
    }
    const shared = Math.min(...options.depths);
    const together = await timesOf(3, () =>
      decode(
        runner,
        Array.from({ length: streams }, () => runner.fork(context, shared)),
      ),
    );
    const total = streams * decoded;
    report.add({
      row: `${label} tg${decoded} x${streams} @ d${shared}`,
      "tokens/s": total / median(together),
      ...spread(together, total),
    });
    await runner.close();
  }
  report.print();
}

function spread(seconds: readonly number[], tokens: number) {
  return { min: tokens / Math.max(...seconds), max: tokens / Math.min(...seconds), n: seconds.length };
}

/** After one that is not counted. */
async function timesOf(count: number, run: () => Promise<number>): Promise<number[]> {
  await run();
  const times: number[] = [];
  for (let i = 0; i < count; i++) times.push(await run());
  return times;
}

const text = (length: number, salt: number) =>
  Int32Array.from({ length }, (_, index) => 100 + ((index * 7919 + salt * 104_729) % 40_000));

async function grow(runner: Runner, id: SequenceId, depth: number): Promise<void> {
  const { length } = runner.sequence(id);
  runner.splice(id, [{ start: length, end: length, count: depth - length }]);
  const tokens = text(depth - length, length);
  for (let at = 0; at < tokens.length; at += chunk) {
    await runner.step([{ sequence: id, tokens: tokens.subarray(at, at + chunk) }]);
  }
}

/** Seconds for one chunk; the sequence is released. */
async function prefill(runner: Runner, id: SequenceId): Promise<number> {
  const { length } = runner.sequence(id);
  runner.splice(id, [{ start: length, end: length, count: chunk }]);
  const begin = performance.now();
  await runner.step([{ sequence: id, tokens: text(chunk, 3) }]);
  const seconds = (performance.now() - begin) / 1000;
  runner.release(id);
  return seconds;
}

/** Seconds for `decoded` greedy tokens of each sequence, one step for all; the sequences are released. */
async function decode(runner: Runner, ids: readonly SequenceId[]): Promise<number> {
  let last = ids.map((_, place) => 200 + place);
  const begin = performance.now();
  for (let draw = 0; draw < decoded; draw++) {
    const entries = ids.map((sequence, place) => {
      const { length } = runner.sequence(sequence);
      runner.splice(sequence, [{ start: length, end: length, count: 1 }]);
      return {
        sequence,
        tokens: Int32Array.of(last[place]!),
        sample: { ...greedy, draw, generatedFrom: 0, top: 0 },
      };
    });
    last = (await runner.step(entries)).outcomes.map(({ token }) => token);
  }
  const seconds = (performance.now() - begin) / 1000;
  for (const id of ids) runner.release(id);
  return seconds;
}
