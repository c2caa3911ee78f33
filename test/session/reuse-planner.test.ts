import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Message, Repair } from "../../src/chat/chat.ts";
import { greedy } from "../../src/engine/job.ts";
import { planEdit } from "../../src/session/planner/edit-planner.ts";
import { countOf } from "../../src/session/planner/range.ts";
import { contentOf } from "../../src/session/planner/reuse-executor.ts";
import { minAdopted, planReuse } from "../../src/session/planner/reuse-planner.ts";
import { lengthOf, type Span, spanOf, tokensOf } from "../../src/text/span.ts";
import { FakeEngine, hashing } from "../support/fake-engine.ts";
import { ask, assistant, closedGate, localChat, long, system, user } from "../support/fake-engine-chat.ts";

const exchange = (name: string): Message[] => [user(long(`ask ${name}`)), assistant(long(`tell ${name}`))];
const [one, two, three, four] = ["one", "two", "three", "four"].map(exchange) as Message[][];
const history = [system, user("Begin."), ...one!, ...two!, ...three!, ...four!];
const memory = user("[memory] one and two were told.");
const compacted = [system, user("Begin."), memory, ...three!, ...four!];
const turn = user("And now?");
/** A user message that is replaced in every request. */
const trailer = (text: string) => user(`catalog: ${long(text)}`);

describe("an expand of a compacted range", () => {
  it.each(["s", undefined])("computes none of the copies (session %s)", async (session) => {
    const { chat, engine } = localChat(hashing(256));
    const named = session === undefined ? {} : { session };
    const tokensOfAll = (messages: Message[]) =>
      chat.applyTemplate(messages, [], { addGenerationPrompt: false }).tokens.length;
    await ask(chat, { messages: [...history, turn], maxTokens: 4, ...named });
    await ask(chat, { messages: [...compacted, turn], maxTokens: 4, ...named });
    const before = engine.tokensComputed;
    const expanded = [...compacted, assistant("I expand."), ...one!, ...two!, turn];
    const { cacheUsage, promptTokens } = await ask(chat, { messages: expanded, maxTokens: 4, ...named });
    const copies = tokensOfAll([system, ...one!, ...two!]) - tokensOfAll([system]);
    expect(cacheUsage.relocated).toBeGreaterThanOrEqual(copies);
    const fresh = tokensOfAll([system, assistant("I expand."), turn]) - tokensOfAll([system]);
    expect(cacheUsage.computed).toBeLessThanOrEqual(fresh + 32);
    expect(cacheUsage.kept + cacheUsage.relocated + cacheUsage.computed).toBe(promptTokens);
    expect(cacheUsage.reason).toMatch(/^\d+ tokens were adopted as they were computed earlier/);
    expect(engine.tokensComputed - before).toBe(cacheUsage.computed + 3);
    const next = await ask(chat, { messages: [...expanded, assistant("x"), turn], maxTokens: 4, ...named });
    expect(next.cacheUsage.computed).toBeLessThan(80);
  });

  it("leaves the copies to idle repair, also when a request asks for repair", async () => {
    const { chat } = localChat(hashing(256));
    const settings = { session: "s", maxTokens: 4, repair: "assistant" } as const;
    await ask(chat, { messages: [...history, turn], ...settings });
    const edit = await ask(chat, { messages: [...compacted, turn], ...settings });
    expect(edit.cacheUsage.reason).toContain("as repair");
    const { cacheUsage } = await ask(chat, { messages: [...compacted, ...one!, ...two!, turn], ...settings });
    expect(cacheUsage.computed).toBeLessThan(60);
    const next = await ask(chat, { messages: [...compacted, ...one!, ...two!, turn, turn], ...settings });
    expect(next.cacheUsage.computed).toBeGreaterThan(chat.tokenize(long("tell one")).length);
    expect(next.cacheUsage.reason).toContain("as repair");
  });

  it("finds the copies after later compactions and turns, behind a catalog that changes every time", async () => {
    const { chat } = localChat(hashing(256), { context: 8192 });
    const turns = (messages: Message[], at: number) => ({
      messages: [...messages, trailer(`${at}`)],
      session: "s",
      maxTokens: 4,
    });
    await ask(chat, turns(history, 0));
    await ask(chat, turns(compacted, 1));
    const said = [...compacted, assistant(long("more")), user(long("result"))];
    await ask(chat, turns(said, 2));
    const again = [system, user("Begin."), memory, user("[memory] three and four."), ...said.slice(7)];
    await ask(chat, turns(again, 3));
    await ask(chat, turns([...again, assistant(long("last"))], 4));
    const { cacheUsage } = await ask(chat, turns([...again, assistant(long("last")), ...one!, ...two!], 5));
    expect(cacheUsage.computed).toBeLessThan(chat.tokenize(long("5")).length + 80);
    expect(cacheUsage.relocated).toBeGreaterThan(600);
    // The originals of the other compaction too.
    const both = [...again, assistant(long("last")), ...one!, ...two!, ...three!, ...four!];
    const second = await ask(chat, turns(both, 6));
    expect(second.cacheUsage.computed).toBeLessThan(chat.tokenize(long("6")).length + 80);
  });

  it("evicts victims before it evicts a session", async () => {
    const { chat, engine } = localChat(hashing(256), { capacity: 3300 });
    await ask(chat, { messages: [...history, turn], session: "s", maxTokens: 4 });
    await ask(chat, { messages: [...compacted, turn], session: "s", maxTokens: 4 });
    const held = engine.sequences.size;
    await ask(chat, { messages: [system, user("z".repeat(1500))], session: "t", maxTokens: 4 });
    expect(chat.stats()).toMatchObject({ sessions: 2, undoable: 0, evictions: 0 });
    expect(engine.sequences.size).toBeLessThan(held);
    chat.delete("s");
    chat.delete("t");
    expect(engine.sequences.size).toBe(0);
  });

  it("is not served from forgotten cells", async () => {
    const { chat, engine } = localChat(hashing(256));
    const session = "s";
    await ask(chat, { messages: [...history, turn], session, maxTokens: 4 });
    await ask(chat, { messages: [...compacted, turn], session, maxTokens: 4 });
    await ask(chat, { messages: [...compacted, turn], session, maxTokens: 4, forget: true });
    expect(engine.sequences.size).toBe(1);
    const { cacheUsage } = await ask(chat, {
      messages: [...compacted, ...one!, turn],
      session,
      maxTokens: 4,
    });
    expect(cacheUsage.computed).toBeGreaterThan(300);
  });

  it("keeps a repeated message exact while the first one is resident", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: [...history, turn], session: "s", maxTokens: 4 });
    const again = [...history, turn, ...one!, turn];
    const { cacheUsage } = await ask(chat, { messages: again, session: "s", maxTokens: 4 });
    expect(cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
    await ask(chat, { messages: [...compacted, turn], session: "s", maxTokens: 4 });
    const third = await ask(chat, {
      messages: [...compacted, turn, ...three!, turn],
      session: "s",
      maxTokens: 4,
    });
    expect(third.cacheUsage.reason).not.toContain("adopted");
  });

  it("adopts no cells of another conversation that has the same messages", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: [...history, turn], session: "s", maxTokens: 4 });
    await ask(chat, { messages: [...history, turn], maxTokens: 4 });
    const other = [system, user("Something else altogether."), ...one!, turn];
    const { cacheUsage } = await ask(chat, { messages: other, session: "t", maxTokens: 4 });
    expect(cacheUsage).toMatchObject({ relocated: 0, stale: 0 });
  });
});

describe("reordered messages", () => {
  it("keep their cells", async () => {
    const { chat } = localChat(hashing(256));
    await ask(chat, { messages: [...history, turn], session: "s", maxTokens: 4 });
    const messages = [system, user("Begin."), ...three!, ...one!, ...four!, ...two!, turn];
    const { cacheUsage } = await ask(chat, { messages, session: "s", maxTokens: 4 });
    expect(cacheUsage.computed).toBeLessThan(60);
  });

  it("leave a consistent session when the request is refused or cut short", async () => {
    const { chat, engine } = localChat(hashing(256));
    await ask(chat, { messages: [...history, turn], session: "s", maxTokens: 4 });
    const messages = [system, ...three!, user(long("new")), ...one!, ...four!, ...two!, turn];
    for (const after of [0, 1, 3, 5]) {
      engine.stepTokens = 16;
      const gate = closedGate(engine);
      const abort = new AbortController();
      const events = chat.chat({ messages, session: "s", maxTokens: 20, signal: abort.signal });
      const first = events.next();
      gate.open();
      for (let step = 0; step < after; step++) await new Promise((resolve) => setImmediate(resolve));
      abort.abort();
      await first.then(() => events.return()).catch(({ code }) => expect(code).toBe("CANCELLED"));
      expect(chat.list()).toMatchObject([{ id: "s", busy: false }]);
      const map = chat.inspect("s");
      expect(map.spans.at(-1)!.end).toBe(map.tokens);
    }
    const { cacheUsage } = await ask(chat, { messages, session: "s", maxTokens: 4 });
    expect(cacheUsage.computed).toBeLessThan(chat.tokenize(long("new")).length + 80);
  });
});

describe("a reuse plan", () => {
  const message = (name: number, length: number): Span =>
    spanOf(
      name % 2 ? "user" : "assistant",
      Int32Array.from({ length }, (_, index) => (index < 3 ? index : 1000 * name + index)),
    );
  const spans = fc.array(
    fc
      .tuple(fc.integer({ min: 0, max: 9 }), fc.constantFrom(5, 30, 70))
      .map(([name, length]) => message(name, length)),
    { maxLength: 9 },
  );

  const scene = fc.record({
    resident: spans,
    next: spans,
    tail: fc.constantFrom([message(11, 4)], []),
    others: fc.array(spans, { maxLength: 2 }),
    exact: fc.nat(300),
    repair: fc.constantFrom<Repair>("none", "none", "assistant", 40, 0.5),
  });

  it("results in the wanted tokens, never computes more than an edit, and has consistent counts", async () => {
    let adoptions = 0;
    await fc.assert(
      fc.asyncProperty(scene, async ({ resident, next, tail, others, exact, repair }) => {
        const wanted = [...next, ...tail];
        fc.pre(wanted.length > 0);
        const engine = new FakeEngine(() => 0);
        const fill = async (content: readonly Span[]) => {
          const sequence = engine.create();
          if (content.length > 0) await run(sequence, [{ start: 0, end: 0, tokens: tokensOf(content) }]);
          return sequence;
        };
        const held = await fill(resident);
        const sources: { spans: readonly Span[]; sequence: typeof held }[] = [];
        for (const one of others) sources.push({ spans: one, sequence: await fill(one) });
        const length = lengthOf(resident);
        const options = { reuse: "suffix", exactLength: Math.min(exact, length), repair } as const;
        const plan = planEdit(resident, wanted, { ...options, sources });
        const edit = planEdit(resident, wanted, options);
        if (repair === "none") expect(plan.computed).toBeLessThanOrEqual(edit.computed);
        if (repair === "none") expect(plan.cut).toBe(plan.dropped);
        expect(plan.kept + plan.relocated + plan.computed).toBe(lengthOf(wanted));
        expect(plan.computed).toBeGreaterThan(0);
        expect(plan.reused.reduce((sum, { count }) => sum + count, 0)).toBe(plan.kept + plan.relocated);
        let sequence = held;
        if (plan.reusePlan) {
          adoptions++;
          sequence = held.fork(plan.reusePlan.kept);
          for (const { source, start, end } of plan.reusePlan.runs) {
            if (source >= 0) expect(end - start).toBeGreaterThanOrEqual(minAdopted - 1);
            sequence.adopt(source < 0 ? held : sources[source]!.sequence, start, end);
          }
          const { spans: assembled, relocated } = contentOf(plan.reusePlan, wanted, []);
          expect(sequence.tokens()).toEqual(tokensOf(assembled));
          const behind = { start: plan.reusePlan.kept, end: sequence.length };
          expect(countOf(relocated)).toBe(behind.end - behind.start);
        }
        const before = engine.tokensComputed;
        await run(sequence, plan.splices);
        expect(engine.tokensComputed - before).toBe(plan.computed);
        expect(sequence.tokens()).toEqual(tokensOf(wanted));
        if (exact >= length) expect(plan.exactLength).toBe(sequence.exactLength);
      }),
      { numRuns: 300 },
    );
    expect(adoptions).toBeGreaterThan(5);
  });

  it("needs runs of whole spans with 64 tokens", () => {
    const resident = [message(1, 40)];
    const source = { spans: [message(2, 40), message(3, 24), message(4, 70)] };
    const reused = [{ startOld: 0, startNew: 0, count: 40 }];
    const planned = (wanted: Span[]) =>
      planReuse(resident, [...resident, ...wanted, message(9, 4)], reused, [source]);
    expect(planned([message(2, 40)])).toBeUndefined();
    expect(planned([message(2, 40), message(5, 9)])).toBeUndefined();
    expect(planned([message(2, 40), message(3, 24)])).toMatchObject({
      kept: 40,
      runs: [{ source: 0, start: 0, end: 64 }],
    });
    expect(planned([message(4, 70)])).toMatchObject({
      runs: [{ source: 0, start: 64, end: 134 }],
      adopted: 70,
    });
    expect(planned([message(3, 24), message(2, 40)])).toBeUndefined();
  });
});

async function run(
  sequence: ReturnType<FakeEngine["create"]>,
  splices: Parameters<typeof sequence.run>[0]["splices"],
): Promise<void> {
  await sequence.run({ splices, maxTokens: 0, stopTokens: new Set(), top: 0, sampling: greedy }).next();
}
