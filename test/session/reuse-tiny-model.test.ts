// Expands, reorderings and side questions on the tiny model: what they compute, that idle repair makes adopted cells
// exact, and that every page is counted after any order of edits.
import fc from "fast-check";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import { messagesOf } from "../../src/context/block.ts";
import { compactBlock } from "../../src/context/compact.ts";
import { Compressor } from "../../src/context/compressor.ts";
import { Conversation } from "../../src/context/conversation.ts";
import { expandBlock } from "../../src/context/expand.ts";
import { ask, assistant, long, system, user } from "../support/fake-engine-chat.ts";
import { openTinyChat, type TinyChat } from "../support/tiny-chat.ts";

let real: TinyChat;
let eager: TinyChat;
beforeAll(async () => {
  real = await openTinyChat("session-adoption", { sessionsMax: 16 });
  eager = await openTinyChat("session-adoption-eager", { idleRepair: true, idleDelayMs: 0 });
});
afterEach(() => {
  for (const { chat, engine, runner } of [real, eager]) {
    runner.check();
    for (const { id } of chat.list()) chat.delete(id);
    expect(engine.stats()).toMatchObject({ sequences: 0, pagesUsed: 0 });
  }
});
afterAll(async () => {
  await real?.close();
  await eager?.close();
});

const exchange = (name: string): Message[] => [
  assistant(`I ask for ${name}.`),
  user(`${long(`result ${name}`)} ${long(`rest ${name}`)}`),
];

/** Tokens of messages in the middle of a prompt. */
function tokensOf({ chat }: TinyChat, messages: readonly Message[]): number {
  const count = (all: readonly Message[]) =>
    chat.applyTemplate(all, [], { addGenerationPrompt: false }).tokens.length;
  return count([system, ...messages]) - count([system]);
}

describe("on the real engine", () => {
  it("computes only the instruction of a compaction and the new text of an expand, and repair makes the copies exact", async () => {
    const { chat, engine } = eager;
    const conversation = new Conversation({
      instructions: [system],
      count: (message) => tokensOf(eager, [message]),
    });
    const history = conversation.history;
    conversation.request(user("Find the answer."));
    for (const name of ["one", "two", "three", "four"]) {
      const [asked, result] = exchange(name) as [Message, Message];
      const toolCalls = [{ id: name, name: "read", arguments: "{}" }];
      conversation.exchange([
        { ...asked, toolCalls },
        { ...result, role: "tool", toolCallId: name },
      ]);
    }
    const agent = (messages = history.messages()) => ask(chat, { messages, session: "agent", maxTokens: 8 });
    await agent();

    const before = history.messages();
    const computedBefore = engine.stats().tokensComputed;
    // The random model's answers are long and meaningless, so the compressor makes two calls and writes no summary.
    const compressor = new Compressor({ chat, answer: { session: "agent", stop: ["\u0000"] } });
    const outcome = await compactBlock('{"start":"b001","end":"b002"}', {
      conversation,
      compressor,
      limit: 8192,
    });
    const through = chat.applyTemplate(before.slice(0, 6), [], { addGenerationPrompt: false }).tokens.length;
    for (const { cacheUsage, promptTokens } of outcome.finishes) {
      expect(cacheUsage.session).toMatch(/^anon-/);
      expect(cacheUsage.kept).toBeGreaterThanOrEqual(through);
      expect(cacheUsage).toMatchObject({ relocated: 0, computed: promptTokens - cacheUsage.kept });
    }
    const sampled = outcome.finishes.reduce((sum, one) => sum + one.completionTokens - 1, 0);
    const billed = outcome.finishes.reduce((sum, one) => sum + one.cacheUsage.computed, 0);
    expect(engine.stats().tokensComputed - computedBefore).toBe(billed + sampled);
    expect(chat.list().map(({ id }) => id)).toEqual(["agent"]);

    if (!outcome.done) conversation.compact({ start: 1, end: 3 }, "Nothing of note was found.");
    expect(history.blocks).toHaveLength(4);
    await agent();
    const { done } = expandBlock('{"tag":"ctx-0001"}', { conversation, limit: 8192, pending: 0 });
    const turn = conversation.exchange([assistant("I expand ctx-0001.")]);
    const copies = done!.apply().flatMap(messagesOf);
    const expanded = await agent();
    expect(expanded.cacheUsage.relocated).toBeGreaterThanOrEqual(tokensOf(eager, copies));
    const fresh = tokensOf(
      eager,
      turn.originals.map(({ message }) => message),
    );
    expect(expanded.cacheUsage.computed).toBeLessThanOrEqual(fresh + 32);

    for (let wait = 0; wait < 2000 && chat.stats().staleTokens > 0; wait++)
      await new Promise((wake) => setTimeout(wake, 2));
    const { stale, tokens, shifts } = chat.inspect("agent");
    expect({ stale, shifts }).toEqual({
      stale: [],
      shifts: [{ start: 0, end: tokens, shift: 0 }],
    });
    const scored = { messages: [...history.messages(), user("And now?")], maxTokens: 6, topLogprobs: 3 };
    const warm = await ask(chat, { ...scored, session: "agent" });
    expect(warm.cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
    const cold = await ask(chat, { ...scored, session: "cold", reuse: "none" });
    expect(warm.answer).toBe(cold.answer);
    const logprobs = (answer: typeof warm) =>
      answer.deltas.flatMap((delta) => delta.logprobs!.map((one) => one.logprob));
    for (const [index, value] of logprobs(warm).entries())
      expect(Math.abs(value - logprobs(cold)[index]!)).toBeLessThan(1e-4);
  });

  it("keeps cells consistent and pages counted in any order of turns, compactions, expands and reorderings", async () => {
    const { chat, runner, engine } = real;
    let adoptions = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(act, { minLength: 4, maxLength: 9 }), async (acts) => {
        for (const { kind, messages, another } of walk(acts)) {
          const prompt = { messages, session: "s", maxTokens: 3 };
          if (kind === "abort") {
            const events = chat.chat({ ...prompt, messages: another, maxTokens: 40 });
            await events.next();
            await events.return();
            runner.check();
          }
          const repair = kind === "repair" ? ({ repair: "assistant" } as const) : {};
          const computed = engine.stats().tokensComputed;
          const request = { ...prompt, ...repair, fork: kind === "fork" };
          const { cacheUsage, promptTokens, completionTokens } = await ask(chat, request);
          expect(engine.stats().tokensComputed - computed).toBe(cacheUsage.computed + completionTokens - 1);
          runner.check();
          if (cacheUsage.reason.includes("adopted")) adoptions++;
          // An inconsistent session would have been dropped.
          if (kind === "fork") expect(cacheUsage.session).not.toBe("s");
          else expect(chat.inspect("s").tokens).toBe(promptTokens + completionTokens - 1);
        }
        for (const { id } of chat.list()) chat.delete(id);
        expect(engine.stats()).toMatchObject({ sequences: 0, pagesUsed: 0 });
      }),
      { numRuns: 12, examples: [[adopting]] },
    );
    expect(adoptions).toBeGreaterThanOrEqual(2);
  });

  it("serves or refuses two conversations in a pool for one and a half, without losing or mixing cells", async () => {
    const small = await openTinyChat("session-adoption-small", {
      pages: 190,
      idleRepair: true,
      idleDelayMs: 0,
    });
    const { chat, runner, engine } = small;
    let [served, refused] = [0, 0];
    const serve = async (session: string, acts: readonly Act[]) => {
      for (const { kind, messages, another } of walk(acts)) {
        const abort = new AbortController();
        if (kind === "abort") setTimeout(() => abort.abort(), 5);
        const prompt = { messages: kind === "abort" ? another : messages, session, maxTokens: 3 };
        try {
          await ask(chat, { ...prompt, fork: kind === "fork", signal: abort.signal });
          served++;
        } catch (cause) {
          const { code } = cause as { code?: string };
          expect(["CACHE_FULL", "CACHE_TOO_SMALL", "CANCELLED"], String(cause)).toContain(code);
          refused++;
        }
        runner.check();
      }
    };
    const acts = fc.array(act, { minLength: 3, maxLength: 7 });
    await fc.assert(
      fc.asyncProperty(acts, acts, async (first, second) => {
        await Promise.all([serve("a", first), serve("b", second)]);
        const messages = [system, user("Begin."), ...exchange("a")];
        const exact = { messages, maxTokens: 6, reuse: "prefix" } as const;
        const [warm, cold] = [
          await ask(chat, { ...exact, session: "a" }),
          await ask(chat, { ...exact, session: "c", reuse: "none" }),
        ];
        expect(warm.answer).toBe(cold.answer);
        for (const { id } of chat.list()) chat.delete(id);
        // A piece of idle repair may be running, and a cached prefix may remain.
        expect(engine.stats().sequences).toBeLessThanOrEqual(6);
      }),
      { numRuns: 6, examples: [[adopting, adopting]] },
    );
    expect(served).toBeGreaterThan(20);
    expect(served).toBeGreaterThan(refused);
    await chat.close();
    expect(engine.stats()).toMatchObject({ sequences: 0, pagesUsed: 0 });
    await small.close();
  });
});

const kinds = ["turn", "compact", "expand", "reorder", "fork", "abort", "undo", "repair"] as const;

interface Act {
  readonly kind: (typeof kinds)[number];
  readonly start: number;
  readonly count: number;
}

const act: fc.Arbitrary<Act> = fc.record({
  kind: fc.constantFrom(...kinds),
  start: fc.nat(5),
  count: fc.integer({ min: 1, max: 3 }),
});

const adopting = (["turn", "compact", "turn", "expand", "reorder"] as const).map((kind) => ({
  kind,
  start: 0,
  count: 2,
}));

interface Step {
  readonly kind: Act["kind"];
  readonly messages: readonly Message[];
  /** Reorders messages and appends more. */
  readonly another: readonly Message[];
}

/** The prompts of an agent that performs these acts, one per act. */
function walk(acts: readonly Act[]): Step[] {
  let messages: Message[] = [system, user("Begin."), ...["a", "b", "c"].flatMap(exchange)];
  let before = messages;
  const archive: Message[][] = [];
  return acts.map(({ kind, start, count }, at) => {
    const index = 2 + 2 * (start % ((messages.length - 2) >> 1));
    const range = messages.slice(index, index + 2 * count);
    const behind = messages.slice(index + 2 * count);
    const moved = [...messages.slice(0, index), ...behind, ...range];
    const old = messages;
    if (kind === "turn") messages = [...messages, ...exchange(`${at}`)];
    if (kind === "undo") messages = before;
    if (kind === "reorder") messages = moved;
    if (kind === "expand") messages = [...messages, ...(archive[start % (archive.length || 1)] ?? [])];
    if (kind === "compact") {
      archive.push(range);
      messages = [...messages.slice(0, index), user(`[memory ${at}]`), assistant("I see."), ...behind];
    }
    before = old;
    const another = [...moved, user(long("cut"))];
    return { kind, messages: [...messages, user(`turn ${at}`)], another };
  });
}
