// The headline: a conversation whose oldest messages are replaced by a summary of about 200 tokens, sent as a
// plain OpenAI request over a socket. Time to first token with suffix reuse (only the summary and the new turn
// are computed) beside prefix reuse (everything behind the edit) and a cold start.
import OpenAI from "openai";
import type { Manifest } from "../models/manifest.ts";
import { packageRoot } from "../src/commands/package-root.ts";
import type { Bill } from "../src/context/chat.ts";
import { buildServer } from "../src/server/app.ts";
import { thisMachine } from "./machine.ts";
import { folderOf, openBenchServer } from "./open.ts";
import { median, Report } from "./report.ts";

export interface CompactionOptions {
  readonly model: readonly string[];
  readonly contexts: readonly number[];
  readonly repeat: number;
}

type Message = OpenAI.ChatCompletionMessageParam;

interface Answer {
  /** Milliseconds from sending to the first token of text. */
  readonly firstTokenMs: number;
  readonly promptTokens: number;
  readonly bill: Bill;
}

export async function compaction(options: CompactionOptions): Promise<void> {
  const report = new Report("compaction", thisMachine(), packageRoot());
  for (const name of options.model) {
    // Three sessions of the longest context, and room for what is asked of them.
    const model = await openBenchServer(folderOf(name), 3 * Math.max(...options.contexts) + 8192);
    const app = buildServer(model.backend, {
      activeRequests: 4,
      queuedRequests: 16,
      bodyBytes: 2 ** 26,
      apiKeys: [],
      allowedHosts: [],
      keepAliveMs: 10_000,
      logLevel: "silent",
    });
    await app.listen({ host: "127.0.0.1", port: 0 });
    const { port } = app.server.address() as { port: number };
    const client = new OpenAI({
      baseURL: `http://127.0.0.1:${port}/v1`,
      apiKey: "none",
      timeout: 3_600_000,
      maxRetries: 0,
    });
    for (const context of options.contexts) {
      await measure(report, model.manifest, client, context, options.repeat);
    }
    await app.close();
    await model.close();
  }
  report.print();
}

/** What the request asks for. */
const arms = [
  { name: "reuse=suffix repair=none", reuse: "suffix", repair: "none" },
  { name: "reuse=suffix repair=assistant", reuse: "suffix", repair: "assistant" },
  { name: "reuse=prefix", reuse: "prefix", repair: "none" },
  { name: "reuse=none", reuse: "none", repair: "none" },
] as const;

async function measure(
  report: Report,
  { id: model, weights }: Manifest,
  client: OpenAI,
  context: number,
  repeat: number,
): Promise<void> {
  for (const arm of arms) {
    const answers: Answer[] = [];
    for (let round = 0; round < repeat; round++) {
      const session = `${context}-${arm.name}-${round}`;
      const messages = await conversation(client, context, round);
      // The cold row is the compacted prompt in a session of its own; the others compact a resident one.
      if (arm.reuse !== "none") await ask(client, model, messages, { session });
      answers.push(
        await ask(client, model, compacted(messages), { session, reuse: arm.reuse, repair: arm.repair }),
      );
      await fetch(`${client.baseURL}/sessions/${session}`, { method: "DELETE" });
    }
    const { promptTokens, bill } = answers[0]!;
    report.add({
      row: `${model} weights=${weights.format} compact ${context / 2}→200 front @ ${context} ${arm.name}`,
      "first token ms": median(answers.map(({ firstTokenMs }) => firstTokenMs)),
      prompt: promptTokens,
      kept: bill.kept,
      relocated: bill.relocated,
      computed: bill.computed,
      n: answers.length,
    });
  }
}

async function ask(
  client: OpenAI,
  model: string,
  messages: readonly Message[],
  pocket: object,
): Promise<Answer> {
  const begin = performance.now();
  const body = {
    model,
    messages: [...messages],
    max_tokens: 1,
    temperature: 0,
    stream: true as const,
    stream_options: { include_usage: true },
    pocket,
  };
  let firstTokenMs = Number.NaN;
  let promptTokens = 0;
  let bill: Bill | undefined;
  for await (const chunk of await client.chat.completions.create(body)) {
    if (Number.isNaN(firstTokenMs) && chunk.choices[0]?.delta.content)
      firstTokenMs = performance.now() - begin;
    promptTokens = chunk.usage?.prompt_tokens ?? promptTokens;
    bill = (chunk as { pocket?: Bill }).pocket ?? bill;
  }
  if (!bill) throw new Error("The stream ended without a bill.");
  return { firstTokenMs, promptTokens, bill };
}

const words =
  "the paged cache keeps survivors where they lie and turns the query once per stretch of equal shift while a summary of what was removed is computed in front of them".split(
    " ",
  );

/** Exchanges of a made-up log, no two alike, until the prompt has `tokens` tokens. */
async function conversation(client: OpenAI, tokens: number, round: number): Promise<Message[]> {
  const messages: Message[] = [{ role: "system", content: `You are a careful engineer. Run ${round}.` }];
  const line = (turn: number, index: number) =>
    `${turn}.${index} ${words[(turn * 7 + index * 3) % words.length]} ${words[(turn + index * 11) % words.length]} = ${(turn * 7919 + index * 104_729) % 9973};`;
  const text = (turn: number, lines: number) =>
    Array.from({ length: lines }, (_, index) => line(turn, index)).join("\n");
  let turn = 0;
  // As in an agent's log, a seventh of it is the assistant's.
  const add = () => {
    messages.push(
      turn % 2 === 0
        ? { role: "user", content: text(turn, 24) }
        : { role: "assistant", content: text(turn, 4) },
    );
    turn++;
  };
  add();
  // The last message is the user's, and the prompt at least as long as asked for.
  while (turn % 2 === 0 || (await count(client, messages)) < tokens) add();
  return messages;
}

/** The first half of the messages behind the system prompt, replaced; and a new turn at the end. */
function compacted(messages: readonly Message[]): Message[] {
  const half = 1 + 2 * Math.floor((messages.length - 1) / 4);
  const summary = `Summary of the removed messages: ${words.concat(words, words, words, words).slice(0, 150).join(" ")}.`;
  return [
    messages[0]!,
    { role: "user", content: summary },
    ...messages.slice(half),
    { role: "assistant", content: "Noted." },
    { role: "user", content: "Which line came last?" },
  ];
}

async function count(client: OpenAI, messages: readonly Message[]): Promise<number> {
  const url = client.baseURL.replace(/\/v1$/, "/apply-template");
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages }),
  });
  const { tokens } = (await response.json()) as { tokens: readonly number[] };
  return tokens.length;
}
