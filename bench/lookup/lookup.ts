// Prompt lookup on against off, in turn, in one process: an answer that repeats a source file with small changes, and
// one that invents. The prompt is read once and found again, so that what is timed is decoding: tokens after the first
// a second. And what a step costs by its rows, from which the most proposals of a step were chosen.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Command } from "commander";
import type { ChatEvent, ChatRequest } from "../../src/chat/chat.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { KvType, Runner } from "../../src/engine/addon.ts";
import { greedy } from "../../src/engine/job.ts";
import type { Backend } from "../../src/server/backend.ts";
import { thisMachine } from "../support/machine.ts";
import { folderOf, openBenchRunner, openBenchServer } from "../support/open-model.ts";
import { activationsOption, kvOption, modelOption, numbers, repeatOption } from "../support/options.ts";
import { median, Report } from "../support/results.ts";

export interface LookupBenchOptions {
  readonly model: readonly string[];
  readonly kv: string;
  readonly activations: string;
  readonly tokens: number;
  readonly repeat: number;
  readonly rows: readonly number[];
  /** Words that a row's name must have. */
  readonly only: readonly string[];
}

const lines = 150;

export async function lookup(options: LookupBenchOptions): Promise<void> {
  const report = new Report("lookup", thisMachine(), packageRoot());
  for (const name of options.model) {
    if (options.rows.some((rows) => rows > 1)) await rowCosts(report, name, options);
    const model = await openBenchServer(folderOf(name), 16_384);
    for (const [label, request] of tasks().filter(([own]) =>
      options.only.every((word) => own.includes(word)),
    )) {
      const pairs: [off: Timed, on: Timed][] = [];
      await timed(model.backend, { ...request, maxTokens: 2, lookup: false });
      for (let i = 0; i < options.repeat; i++) {
        // Each pair has its own seed; the order within pairs alternates.
        const asked = { ...request, seed: i, maxTokens: options.tokens };
        const order = i % 2 === 0 ? [false, true] : [true, false];
        const [one, other] = [
          await timed(model.backend, { ...asked, lookup: order[0]! }),
          await timed(model.backend, { ...asked, lookup: order[1]! }),
        ];
        pairs.push(order[0] ? [other, one] : [one, other]);
      }
      report.add({ row: `${name} ${label}, ${options.tokens} tokens`, ...compared(pairs) });
    }
    await model.close();
  }
  report.print();
}

function tasks(): [label: string, request: ChatRequest][] {
  const file = readFileSync(join(packageRoot(), "src", "server", "openai", "respond.ts"), "utf8")
    .split("\n")
    .slice(0, lines);
  const edit = `Here is a file:\n\n\`\`\`ts\n${file.join("\n")}\n\`\`\`\n\nRename \`gather\` to \`collectAnswer\` everywhere. Answer with the complete new file and nothing else.`;
  const invent =
    "Write a long story about a lighthouse keeper who learns to bake bread. Do not repeat yourself.";
  const plain = { temperature: 0, repetitionPenalty: 1 };
  const ask = (content: string) => [{ role: "user", content }] as const;
  return [
    [`copy: ${lines} lines of source, greedy`, { messages: ask(edit), session: "copy", ...plain }],
    ["copy, default sampling", { messages: ask(edit), session: "copy" }],
    ["free text, greedy", { messages: ask(invent), session: "free", ...plain }],
    ["free text, default sampling", { messages: ask(invent), session: "free" }],
  ];
}

interface Timed {
  readonly rate: number;
  readonly text: string;
  readonly tokens: number;
  readonly accepted: number;
  readonly rejected: number;
}

async function timed(backend: Backend, request: ChatRequest): Promise<Timed> {
  let text = "";
  let finish: Extract<ChatEvent, { type: "answer-finished" }> | undefined;
  for await (const event of backend.chat(request)) {
    if (event.type === "text-delta") text += event.text;
    if (event.type === "answer-finished") finish = event;
  }
  const { completionTokens: tokens, generateMs, draftTokens } = finish!;
  return { rate: ((tokens - 1) * 1000) / generateMs, text, tokens, ...draftTokens! };
}

function compared(pairs: readonly (readonly [off: Timed, on: Timed])[]) {
  const ratios = pairs.map(([off, on]) => on.rate / off.rate);
  const total = (of: (on: Timed) => number) => pairs.reduce((sum, [, on]) => sum + of(on), 0);
  const accepted = total((on) => on.accepted);
  const proposed = accepted + total((on) => on.rejected);
  return {
    "off tokens/s": median(pairs.map(([off]) => off.rate)),
    "on tokens/s": median(pairs.map(([, on]) => on.rate)),
    ratio: median(ratios),
    min: Math.min(...ratios),
    max: Math.max(...ratios),
    "accepted of proposed": proposed > 0 ? `${Math.round((100 * accepted) / proposed)} %` : "none proposed",
    "accepted of answer": `${Math.round((100 * accepted) / total((on) => on.tokens))} %`,
    "same answer": `${pairs.filter(([off, on]) => off.text === on.text).length} of ${pairs.length}`,
    n: pairs.length,
  };
}

/** A decode step with further rows, against one row, alternating: time, and how far the first row's logprob moves. */
async function rowCosts(report: Report, name: string, options: LookupBenchOptions): Promise<void> {
  const depth = 1024;
  const { runner } = await openBenchRunner(folderOf(name), {
    tokens: 4 * depth,
    kvType: options.kv as KvType,
    activations: options.activations as "int8" | "f32",
  });
  const base = runner.newSequence();
  runner.splice(base, [{ start: 0, end: 0, count: depth }]);
  const text = Int32Array.from({ length: depth }, (_, index) => 100 + ((index * 7919) % 40_000));
  for (let at = 0; at < depth; at += 512) {
    await runner.step([{ sequence: base, tokens: text.subarray(at, at + 512) }]);
  }
  for (const rows of options.rows.filter((rows) => rows > 1)) {
    const ratios: number[] = [];
    const times: number[] = [];
    let moved = 0;
    for (let i = 0; i < 2 + 2 * options.repeat; i++) {
      const one = await step(runner, base, depth, 1);
      const many = await step(runner, base, depth, rows);
      if (i < 2) continue;
      ratios.push(many.ms / one.ms);
      times.push(many.ms);
      moved = Math.abs(many.logprob - one.logprob);
    }
    report.add({
      row: `${name} activations=${options.activations} decode step of ${rows} rows @ d${depth}`,
      ms: median(times),
      ratio: median(ratios),
      min: Math.min(...ratios),
      max: Math.max(...ratios),
      "logprob moved": moved.toExponential(1),
      n: ratios.length,
    });
  }
  await runner.close();
}

async function step(runner: Runner, base: number, depth: number, rows: number) {
  const sequence = runner.fork(base, depth);
  runner.splice(sequence, [{ start: depth, end: depth, count: 1 }]);
  const begin = performance.now();
  const { outcomes } = await runner.step([
    {
      sequence,
      tokens: Int32Array.of(200),
      sample: { ...greedy, draw: 0, generatedFrom: depth, top: 1 },
      ...(rows > 1 && { draftTokens: Int32Array.from({ length: rows - 1 }, (_, index) => 300 + index) }),
    },
  ]);
  const ms = performance.now() - begin;
  runner.release(sequence);
  return { ms, logprob: outcomes[0]!.topLogprobs[0]! };
}

export const lookupCommand = new Command("lookup")
  .description(
    "prompt lookup on against off, on an edit of a source file and on free text; time of a step by rows",
  )
  .addOption(modelOption())
  .addOption(kvOption())
  .addOption(activationsOption())
  .option("--tokens <n>", "new tokens of each answer", Number, 400)
  .addOption(repeatOption(5))
  .option("--rows <n>", "rows of a step; 1: no step is timed", numbers, [2, 3, 4, 6, 8, 12, 16])
  .option("--only <words...>", "measure answers whose name has all words", [])
  .action(lookup);
