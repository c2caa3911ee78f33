// A soak from start to verdict: clients do their worst for a while, then everything is let go of and counted.
// It returns sentences about what was wrong; an empty list is the pass. The same code runs for half an hour from
// the command line and for a minute in the tests.
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Runner } from "../../src/engine/addon.ts";
import type { Counts } from "../../src/server/backend.ts";
import { type FaultCounts, type FaultyRunner, faultyRunner } from "../../test/support/faulty-runner.ts";
import { seeded } from "../../test/support/random.ts";
import { Client } from "./client.ts";
import { type Kept, SoakResults } from "./results.ts";
import { openSoakServer, type SoakServer } from "./server.ts";

export interface SoakOptions {
  readonly seconds: number;
  readonly seed: number;
  readonly clients: number;
  /** Tokens of the pool; a conversation has up to about 600. */
  readonly cacheTokens: number;
  /** Answers asked again on an idle server. */
  readonly replays: number;
  readonly flags?: Readonly<Record<string, string>>;
  /** Breaks the runner for good, to see that the verdict notices. */
  readonly sabotage?: (runner: Runner) => Runner;
}

export interface SoakOutcome {
  readonly wrongs: readonly string[];
  readonly counts: SoakResults["counts"];
  readonly errors: Readonly<Record<string, number>>;
  readonly faults: Readonly<FaultCounts>;
  readonly bills: SoakResults["bills"];
  /** Of the server, when the last client had left. */
  readonly serverCounts: Counts;
  readonly replayed: number;
  /** Bytes of the JavaScript heap after a collection, and of the process, from the middle and the end. */
  readonly heap: readonly [middle: number, end: number];
  readonly resident: readonly [middle: number, end: number];
}

/** Three bad steps in a row would rightly break the engine; at this chance they do not happen in a day. */
const luck = { step: 0.004, slow: 0.01, slowMs: 60, splice: 0.01, save: 0.2, load: 0.1 };
/** Leading spans that are kept when their sessions have gone, as the session room bounds them. */
const maxPrefixes = 4;
/** Bytes that heap and process may grow by from the middle of a soak to its end. */
const heapGrowth = 48 * 2 ** 20;
const residentGrowth = 160 * 2 ** 20;

export async function soak(options: SoakOptions): Promise<SoakOutcome> {
  const results = new SoakResults(options.replays, seeded(options.seed));
  const { cacheTokens, flags = {}, sabotage = (runner) => runner } = options;
  let faulty: FaultyRunner | undefined;
  const wrap = (runner: Runner) => {
    faulty = faultyRunner(sabotage(runner), { seed: options.seed, ...luck });
    return faulty;
  };
  const server = await openSoakServer({ cacheTokens, wrap, flags });
  let outcome: Pick<SoakOutcome, "heap" | "resident" | "serverCounts">;
  try {
    outcome = { ...(await load(server, results, options)), serverCounts: server.backend.counts() };
    faulty!.stop();
    await countUp(server, results);
  } finally {
    await server.close();
  }
  const replayed = await askAgain(results.kept, results);
  return {
    ...outcome,
    wrongs: results.wrongs,
    counts: results.counts,
    errors: Object.fromEntries(results.errors),
    faults: faulty!.counts,
    bills: results.bills,
    replayed,
  };
}

async function load(server: SoakServer, results: SoakResults, options: SoakOptions) {
  const over = new AbortController();
  const clients = Array.from(
    { length: options.clients },
    (_, number) => new Client(number, options.seed, server.url, server.backend, results),
  );
  const running = Promise.all(clients.map((client) => client.run(over.signal)));
  await sleep(options.seconds * 500);
  const middle = memory();
  await sleep(options.seconds * 500);
  over.abort();
  await running;
  const end = memory();
  if (end.heap - middle.heap > heapGrowth)
    results.wrong(`the heap grew from ${middle.heap} to ${end.heap} bytes`);
  if (end.resident - middle.resident > residentGrowth)
    results.wrong(`the process grew from ${middle.resident} to ${end.resident} bytes`);
  return {
    heap: [middle.heap, end.heap] as const,
    resident: [middle.resident, end.resident] as const,
  };
}

/** Every page is accounted for while sessions exist, and free when they are gone. */
async function countUp(server: SoakServer, results: SoakResults): Promise<void> {
  const { backend, runner } = server;
  const settled = await until(() => Number(backend.health().engine.running) === 0, 20_000);
  if (!settled) results.wrong("jobs are still running 20 s after the last client left");
  const { broken } = backend.health();
  if (broken) results.wrong(`the engine is broken: ${broken.message}`);
  checkInvariants(runner, results, "with sessions");
  for (const { id, busy } of backend.sessions()) {
    if (busy) results.wrong(`session ${id} is busy without a request`);
    backend.deleteSession(id);
  }
  // Background work may have to see the end of its step first; leading spans of evicted sessions stay.
  if (!(await until(() => runner.stats().sequences <= maxPrefixes, 5000)))
    results.wrong(`${runner.stats().sequences} sequences are left when all sessions are deleted`);
  await server.release();
  await until(() => runner.stats().sequences === 0 && runner.stats().pagesUsed === 0, 5000);
  const { sequences, pagesUsed, pagesFree, pages, cells } = runner.stats();
  if (sequences !== 0 || pagesUsed !== 0 || cells !== 0 || pagesFree !== pages)
    results.wrong(`after letting go: ${JSON.stringify({ sequences, cells, pagesUsed, pagesFree, pages })}`);
  checkInvariants(runner, results, "after letting go");
}

function checkInvariants(runner: SoakServer["runner"], results: SoakResults, when: string): void {
  try {
    runner.check();
  } catch (cause) {
    results.wrong(`${when}: ${(cause as Error).message}`);
  }
}

/** On a server that has room, no faults and no other client. */
async function askAgain(kept: readonly Kept[], results: SoakResults): Promise<number> {
  const server = await openSoakServer({ cacheTokens: 16_384 });
  try {
    for (const { tokens, maxTokens, text, finish } of kept) {
      const answer = await idleAnswer(server, tokens, maxTokens);
      if (answer.text !== text || answer.finish !== finish)
        results.wrong(
          `${tokens.length} tokens were answered ${JSON.stringify({ text, finish })} and idle ${JSON.stringify(answer)}`,
        );
    }
  } finally {
    await server.close();
  }
  return kept.length;
}

async function idleAnswer({ backend }: SoakServer, prompt: readonly number[], maxTokens: number) {
  let text = "";
  let finish = "";
  for await (const event of backend.complete({ prompt, maxTokens, temperature: 0, reuse: "none" })) {
    if (event.type === "text-delta") text += event.text;
    if (event.type === "answer-finished") finish = event.reason;
  }
  return { text, finish };
}

async function until(holds: () => boolean, ms: number): Promise<boolean> {
  const end = Date.now() + ms;
  while (!holds()) {
    if (Date.now() > end) return false;
    await sleep(10);
  }
  return true;
}

/** Bytes, after a collection. */
function memory(): { readonly heap: number; readonly resident: number } {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
  const { heapUsed, rss } = process.memoryUsage();
  return { heap: heapUsed, resident: rss };
}
