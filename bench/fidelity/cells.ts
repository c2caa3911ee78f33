// What the benchmark does to sequences, through the calls of the floor only: fill, edit, let speak, look at the
// distributions along a text. It decides nothing.
import type { CellSplice, Runner, SequenceId, StepEntry, StepOutcome } from "../../src/engine/addon.ts";
import { greedy, type Splice } from "../../src/engine/job.ts";
import { concatenate } from "../../src/text/span.ts";
import type { Row } from "./score.ts";
import type { Seen } from "./statistics.ts";

export const chunkTokens = 512;
/** Rows whose distributions are wanted in one step: 64 of 152,000 floats are 39 MB, three times while a step ends. */
const scoredRows = 64;

/** One edit with its tokens, in chunks, front to back. */
export async function edit(
  runner: Runner,
  id: SequenceId,
  splices: readonly Splice[],
  chunk = chunkTokens,
): Promise<void> {
  const cuts = splices.map(({ start, end, tokens }): CellSplice => ({ start, end, count: tokens.length }));
  runner.splice(id, cuts);
  await fill(runner, id, concatenate(splices.map(({ tokens }) => tokens)), chunk);
}

export async function append(
  runner: Runner,
  id: SequenceId,
  tokens: Int32Array,
  chunk = chunkTokens,
): Promise<void> {
  const { length } = runner.sequence(id);
  await edit(runner, id, [{ start: length, end: length, tokens }], chunk);
}

export async function prefill(runner: Runner, tokens: Int32Array, chunk = chunkTokens): Promise<SequenceId> {
  const id = runner.newSequence();
  await append(runner, id, tokens, chunk);
  return id;
}

async function fill(runner: Runner, sequence: SequenceId, tokens: Int32Array, chunk: number): Promise<void> {
  for (let at = 0; at < tokens.length; at += chunk) {
    await runner.step([{ sequence, tokens: tokens.subarray(at, at + chunk) }]);
  }
}

export interface Question {
  readonly prompt: Int32Array;
  /** Tokens of an answer, at most. */
  readonly most: number;
}

/** Greedy answers, side by side; `id` is left as it was. The stop token is an answer's last one, if it came. */
export async function generate(
  runner: Runner,
  id: SequenceId,
  questions: readonly Question[],
  stopTokens: ReadonlySet<number>,
): Promise<Int32Array[]> {
  const forks = await forkEach(
    runner,
    id,
    questions.map(({ prompt }) => prompt.subarray(0, -1)),
  );
  const answers = questions.map((): number[] => []);
  const last = questions.map(({ prompt }) => prompt.at(-1)!);
  for (;;) {
    const going = questions.flatMap(({ most }, index) =>
      answers[index]!.length < most && !stopTokens.has(last[index]!) ? [index] : [],
    );
    if (going.length === 0) break;
    const entries = going.map((index): StepEntry => {
      const sequence = forks[index]!;
      const { length } = runner.sequence(sequence);
      const draw = answers[index]!.length;
      runner.splice(sequence, [{ start: length, end: length, count: 1 }]);
      const sample = { ...greedy, draw, generatedFrom: length - draw, top: 0 };
      return { sequence, tokens: Int32Array.of(last[index]!), sample };
    });
    for (const [row, { token }] of (await runner.step(entries)).outcomes.entries()) {
      last[going[row]!] = token;
      answers[going[row]!]!.push(token);
    }
  }
  for (const fork of forks) runner.release(fork);
  return answers.map((tokens) => Int32Array.from(tokens));
}

export interface Reading {
  readonly prompt: Int32Array;
  readonly text: Int32Array;
}

/**
 * What `view` makes of the distribution at each place of each text behind its prompt; `id` is left as it was. A row
 * that `view` does not keep is gone after a step.
 */
export async function readDistributions<Kept>(
  runner: Runner,
  id: SequenceId,
  readings: readonly Reading[],
  view: (row: Row, reading: number, index: number) => Kept,
): Promise<Kept[][]> {
  const forks = await forkEach(
    runner,
    id,
    readings.map(({ prompt }) => prompt.subarray(0, -1)),
  );
  const kept: Kept[][] = [];
  for (const [reading, { prompt, text }] of readings.entries()) {
    const on = forks[reading]!;
    kept.push(
      await readDistributionsFrom(runner, on, prompt.at(-1)!, text, (row, index) =>
        view(row, reading, index),
      ),
    );
    runner.release(on);
  }
  return kept;
}

/** One fork for each, with its tokens behind it; computed in steps that they share. */
async function forkEach(runner: Runner, id: SequenceId, parts: readonly Int32Array[]): Promise<SequenceId[]> {
  const { length } = runner.sequence(id);
  const forks = parts.map(() => runner.fork(id, length));
  const entries = parts.map((tokens, index): StepEntry => ({ sequence: forks[index]!, tokens }));
  for (const { sequence, tokens } of entries) {
    runner.splice(sequence, [{ start: length, end: length, count: tokens.length }]);
  }
  const filled = entries.filter(({ tokens }) => tokens.length > 0);
  if (filled.length > 0) await runner.step(filled);
  return forks;
}

/** As `readDistributions` behind the token `last`, but `id` then has it and `text` without its last token. */
export async function readDistributionsFrom<Kept>(
  runner: Runner,
  id: SequenceId,
  last: number,
  text: Int32Array,
  view: (row: Row, index: number) => Kept,
): Promise<Kept[]> {
  const { length } = runner.sequence(id);
  runner.splice(id, [{ start: length, end: length, count: text.length }]);
  const kept: Kept[] = [];
  const read = Int32Array.of(last, ...text.subarray(0, -1));
  const { vocab } = runner.describe();
  for (let at = 0; at < text.length; at += scoredRows) {
    const targets = text.slice(at, at + scoredRows);
    const tokens = read.subarray(at, at + scoredRows);
    const entry: StepEntry = { sequence: id, tokens, targets, targetTop: 1, distributions: true };
    const outcome = (await runner.step([entry])).outcomes[0]!;
    for (const [index, seen] of seenOf(outcome).entries()) {
      const logprobs = outcome.distributions!.subarray(index * vocab, (index + 1) * vocab);
      kept.push(view({ ...seen, logprobs }, at + index));
    }
  }
  return kept;
}

/** Several short texts behind each of several prompts; `id` is left as it was. */
export async function readDistributionsOnFork(
  runner: Runner,
  id: SequenceId,
  questions: readonly { readonly prompt: Int32Array; readonly texts: readonly Int32Array[] }[],
): Promise<Seen[][][]> {
  const asked = await forkEach(
    runner,
    id,
    questions.map(({ prompt }) => prompt.subarray(0, -1)),
  );
  const entries = questions.flatMap(({ prompt, texts }, index) =>
    texts.map((text): StepEntry => {
      const { length } = runner.sequence(asked[index]!);
      const sequence = runner.fork(asked[index]!, length);
      runner.splice(sequence, [{ start: length, end: length, count: text.length }]);
      const tokens = Int32Array.of(prompt.at(-1)!, ...text.subarray(0, -1));
      return { sequence, tokens, targets: text, targetTop: 1 };
    }),
  );
  const seen = entries.length === 0 ? [] : (await runner.step(entries)).outcomes.map(seenOf);
  for (const { sequence } of entries) runner.release(sequence);
  for (const fork of asked) runner.release(fork);
  return questions.map(({ texts }) => seen.splice(0, texts.length));
}

function seenOf({ targetLogprobs, targetTopTokens }: StepOutcome): Seen[] {
  return Array.from(targetLogprobs, (nextLogprob, row) => ({
    nextLogprob,
    likeliest: targetTopTokens[row]!,
  }));
}
