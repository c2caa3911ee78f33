// Sessions on the tiny model: cells that were repaired, restored, shared or undone give the answers of a cold prefill,
// and every page is counted afterwards.
import { mkdtempSync, readdirSync, rmSync, truncateSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { ChatRequest, Message } from "../../src/chat/chat.ts";
import { PocketError } from "../../src/errors.ts";
import type { LocalChat } from "../../src/session/local-chat.ts";
import { ask, compacted, history, long, system, user } from "../support/fake-engine-chat.ts";
import { openTinyChat, type TinyChat } from "../support/tiny-chat.ts";

const scored = { maxTokens: 8, topLogprobs: 5 };

let folder: string;
let lines: string[];
let real: TinyChat;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "pocket-real-"));
  lines = [];
  real = await openTinyChat("session-real", {
    idleRepair: true,
    idleDelayMs: 0,
    disk: { folder, bytes: 1 << 30 },
    sessionsMax: 16,
    log: (line) => lines.push(line),
  });
});
afterEach(() => {
  const { chat, engine, runner } = real;
  runner.check();
  for (const { id } of chat.list()) chat.delete(id);
  // A cached prefix may remain.
  expect(engine.stats().sequences).toBeLessThanOrEqual(4);
});
afterAll(async () => {
  await real?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function repaired(chat: LocalChat): Promise<void> {
  for (let turn = 0; turn < 2000 && chat.stats().staleTokens > 0; turn++)
    await new Promise((wake) => setTimeout(wake, 2));
  expect(chat.stats().staleTokens).toBe(0);
}

/** Every logprob that an answer reports, in order. */
function logprobsOf({ deltas }: Awaited<ReturnType<typeof ask>>): number[] {
  return deltas.flatMap(({ logprobs }) =>
    logprobs!.flatMap(({ logprob, top }) => [logprob, ...top.map((one) => one.logprob)]),
  );
}

/** Repeats the request without reuse: the same text, and the same logprobs up to the order of sums. */
async function expectCold(warm: Awaited<ReturnType<typeof ask>>, request: ChatRequest): Promise<void> {
  const cold = await ask(real.chat, { ...request, session: "cold", reuse: "none" });
  real.chat.delete("cold");
  expect(cold.cacheUsage.kept).toBe(0);
  expect(warm.answer).toBe(cold.answer);
  const [a, b] = [logprobsOf(warm), logprobsOf(cold)];
  expect(a.length).toBe(b.length);
  for (const [index, value] of a.entries()) expect(Math.abs(value - b[index]!)).toBeLessThan(1e-4);
}

describe("on real cells", () => {
  it("idle repair results in an exact sequence, and the next request computes only its new turn", async () => {
    const { chat, engine } = real;
    await ask(chat, { messages: history, session: "s", ...scored });
    const edit = await ask(chat, { messages: compacted, session: "s", ...scored });
    expect(edit.cacheUsage.relocated).toBeGreaterThan(200);
    await repaired(chat);
    const { tokens, stale, shifts } = chat.inspect("s");
    expect({ stale, shifts }).toEqual({ stale: [], shifts: [{ start: 0, end: tokens, shift: 0 }] });
    const request = { messages: [...compacted, user("And now?")], session: "s", ...scored };
    const before = engine.stats().tokensComputed;
    const warm = await ask(chat, request);
    expect(warm.cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
    expect(warm.cacheUsage.computed).toBeLessThan(80);
    expect(engine.stats().tokensComputed - before).toBe(warm.cacheUsage.computed + warm.completionTokens - 1);
    await expectCold(warm, request);
  });

  it("a session is restored from disk with its cells, and a damaged file is only logged", async () => {
    const { chat, engine } = real;
    const evict = async () => {
      for (let other = 0; other < 16; other++)
        await ask(chat, { messages: [user("z")], session: `z${other}`, maxTokens: 1 });
      expect(chat.list().map(({ id }) => id)).not.toContain("d");
    };
    await ask(chat, { messages: history, session: "d", ...scored });
    await evict();
    const request = { messages: [...history, user("And now?")], session: "d", ...scored };
    const before = engine.stats().tokensComputed;
    const warm = await ask(chat, request);
    expect(lines).toEqual([]);
    expect(warm.cacheUsage.reason).toMatch(/^\d+ tokens came from disk\./);
    expect(warm.cacheUsage.computed).toBeLessThan(80);
    expect(engine.stats().tokensComputed - before).toBe(warm.cacheUsage.computed + warm.completionTokens - 1);
    await expectCold(warm, request);
    await evict();
    const names = () => readdirSync(folder);
    while (names().length === 0 || names().some((name) => !/^[^.]+\.(kv|json)$/.test(name)))
      await new Promise((wake) => setTimeout(wake, 2));
    expect(lines).toEqual([]);
    for (const file of names().filter((name) => name.endsWith(".kv"))) {
      truncateSync(join(folder, file), 1000);
    }
    const again = await ask(chat, request);
    expect(again.answer).toBe(warm.answer);
    expect(again.cacheUsage.kept).toBeLessThan(100);
    expect(lines.length).toBeGreaterThanOrEqual(1);
    expect(lines[0]).toContain("could not be read from disk and is computed again");
  });

  it("an undo restores the old cells, and an edit cut short leaves a consistent session", async () => {
    const { chat } = real;
    await ask(chat, { messages: history, session: "u", ...scored });
    await ask(chat, { messages: compacted, session: "u", ...scored });
    const request = { messages: [...history, user("And now?")], session: "u", ...scored };
    const undone = await ask(chat, request);
    expect(undone.cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
    expect(undone.cacheUsage.computed).toBeLessThan(chat.tokenize("And now?").length + 32);
    await expectCold(undone, request);
    const abort = new AbortController();
    const told = [
      system,
      user(Array.from({ length: 20 }, (_, at) => long(`t${at}`)).join(" ")),
      ...history.slice(3),
    ];
    const events = chat.chat({ messages: told, session: "u", signal: abort.signal });
    const first = events.next();
    setTimeout(() => abort.abort(), 20);
    await first
      .then(() => events.return())
      .catch((cause: PocketError) => expect(cause.code).toBe("CANCELLED"));
    const exact = { messages: told, session: "u", reuse: "prefix" as const, ...scored };
    await expectCold(await ask(chat, exact), exact);
  });

  it("ten sessions hold a long system prompt once", async () => {
    const { chat, engine } = real;
    const rules = { ...system, content: [0, 1, 2, 3].map((at) => long(`rule ${at}`)).join("\n") };
    const { length } = chat.applyTemplate([rules], [], { addGenerationPrompt: false }).tokens;
    const { pagesUsed } = engine.stats();
    for (let agent = 0; agent < 10; agent++) {
      await ask(chat, { messages: [rules, user(`task ${agent}`)], session: `${agent}`, maxTokens: 4 });
    }
    // Per session one turn, one answer and two partly filled pages.
    expect((engine.stats().pagesUsed - pagesUsed) * 16).toBeLessThan(length + 10 * (60 + 2 * 16));
  });
});

describe("a small pool under many clients", () => {
  it("serves every client or returns CACHE_FULL, with the answers of an idle server, and frees every page", async () => {
    const disk = mkdtempSync(join(tmpdir(), "pocket-small-"));
    const small = await openTinyChat("session-small", {
      pages: 110,
      idleRepair: true,
      idleDelayMs: 0,
      sessionsMax: 5,
      disk: { folder: disk, bytes: 1 << 24 },
    });
    const { chat, engine, runner } = small;
    const turns = (client: number, count: number): Message[] => [
      system,
      ...Array.from({ length: count }, (_, turn) =>
        user(`${client}.${turn} ${"word ".repeat(40 + 9 * client)}`),
      ),
    ];
    const client = async (number: number) => {
      const answers: string[] = [];
      for (let round = 1; round <= 4; round++) {
        const request = { messages: turns(number, round), session: `c${number}`, maxTokens: 12 };
        const abort = new AbortController();
        if ((number + round) % 4 === 0) setTimeout(() => abort.abort(), 15);
        try {
          const { answer } = await ask(chat, { ...request, reuse: "prefix", signal: abort.signal });
          answers.push(`${number}.${round} ${answer}`);
        } catch (cause) {
          if (!(cause instanceof PocketError)) throw cause;
          expect(["CANCELLED", "CACHE_FULL"]).toContain(cause.code);
        }
      }
      return answers;
    };
    const answers = (await Promise.all(Array.from({ length: 8 }, (_, number) => client(number)))).flat();
    expect(answers.length).toBeGreaterThan(12);
    runner.check();
    for (const line of answers) {
      const [name, ...words] = line.split(" ");
      const [number, round] = name!.split(".").map(Number);
      const alone = await ask(chat, {
        messages: turns(number!, round!),
        session: "alone",
        reuse: "none",
        maxTokens: 12,
      });
      expect(`${name} ${alone.answer}`).toBe([name, ...words].join(" "));
    }
    await chat.close();
    expect(engine.stats()).toMatchObject({ pagesUsed: 0, sequences: 0, running: 0 });
    await small.close();
    rmSync(disk, { recursive: true });
  });
});
