import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Repair, Reuse } from "../../src/chat/chat.ts";
import { greedy } from "../../src/engine/job.ts";
import { type EditPlan, minSurvivors, planEdit } from "../../src/session/planner/edit-planner.ts";
import { matchSpans } from "../../src/session/planner/match.ts";
import type { Range } from "../../src/session/planner/range.ts";
import type { ReusedRange } from "../../src/session/planner/reused-range.ts";
import { lengthOf, type Span, spanOf, tokensOf, truncate } from "../../src/text/span.ts";
import { FakeEngine } from "../support/fake-engine.ts";

const roles = ["system", "user", "assistant", "tool"] as const;

/** A message of `length` tokens. The first three are the same in all messages, as with a chat template. */
function message(name: number, length: number): Span {
  const body = Array.from({ length }, (_, index) => (index < 3 ? index : 1000 * name + index));
  return spanOf(roles[name % roles.length]!, Int32Array.from(body));
}

/** The tokens after the splices, computed with plain arrays. */
function apply({ splices }: EditPlan, resident: readonly Span[]): number[] {
  const tokens = Array.from(tokensOf(resident));
  for (const { start, end, tokens: inserted } of splices.toReversed()) {
    tokens.splice(start, end - start, ...inserted);
  }
  return tokens;
}

/** Old indices of the resident tokens that stay. */
function survivorsOf({ splices }: EditPlan, lengthOld: number): number[] {
  return Array.from({ length: lengthOld }, (_, index) => index).filter(
    (index) => !splices.some(({ start, end }) => start <= index && index < end),
  );
}

// Few different messages, so that they repeat, move, vanish and return.
const name = fc.integer({ min: 0, max: 7 });
const conversation = fc.array(
  fc.tuple(name, fc.constantFrom(1, 3, 5, 17, 40, 70)).map(([id, length]) => message(id, length)),
  { maxLength: 10 },
);
const edited = fc
  .tuple(
    conversation,
    fc.array(fc.tuple(name, fc.nat(80), fc.constantFrom("cut", "insert", "change", "move")), {
      maxLength: 4,
    }),
  )
  .map(([resident, edits]) => {
    const wanted = resident.slice();
    for (const [id, index, kind] of edits) {
      const at = index % (wanted.length + 1);
      if (kind === "cut") wanted.splice(at, 2);
      if (kind === "insert") wanted.splice(at, 0, message(id, 20));
      if (kind === "move") wanted.push(...wanted.splice(at, 1));
      if (kind === "change" && wanted[at]) {
        const tokens = wanted[at].tokens.slice();
        tokens[index % tokens.length] = -7;
        wanted[at] = spanOf(wanted[at].role, tokens);
      }
    }
    return { resident, wanted: [...wanted, message(8, 4)] };
  });
const reuse = fc.constantFrom<Reuse>("suffix", "prefix", "none");
const repair = fc.constantFrom<Repair>("none", "assistant", "assistant+256", "first-assistant", 5, 0.5);

describe("the example of a compaction", () => {
  const lengths = [500, 1000, 1004, 700];
  const [system, ...replaced] = lengths.map((length, index) => message(10 + index, length));
  const survivors = Array.from({ length: 7 }, (_, index) => message(20 + index, 800));
  const summary = message(40, 200);
  const turn = message(41, 60);
  const resident = [system!, ...replaced, ...survivors];
  const plan = planEdit(resident, [system!, summary, ...survivors, turn], {
    reuse: "suffix",
    exactLength: lengthOf(resident),
  });

  it("has one splice for the replaced messages and one for the new turn, in old coordinates", () => {
    const total = lengthOf(resident);
    // The summary begins like the first replaced message, with the three tokens of every opening.
    const shape = plan.splices.map(({ start, end, tokens }) => [start, end, tokens.length]);
    expect(shape).toEqual([
      [503, 3204, 197],
      [total, total, 60],
    ]);
  });

  it("counts kept, relocated and computed tokens, and reports the survivors as stale", () => {
    expect(plan).toMatchObject({ kept: 503, relocated: 5600, computed: 257, stale: 5600, exactLength: 700 });
    expect(plan.reason).toBe(
      "Edited at token 503, in span 2 (system): 2701 resident tokens were cut and 5600 behind them stayed.",
    );
  });
});

describe("an edit", () => {
  it("results in exactly the wanted tokens, consistent counts and survivors in order (8)", () => {
    fc.assert(
      fc.property(edited, reuse, repair, fc.nat(300), ({ resident, wanted }, mode, mend, cells) => {
        // The last span may be incomplete, as an answer's is.
        const held = truncate(resident, Math.max(0, lengthOf(resident) - (cells % 3)));
        const exactLength = Math.min(cells, lengthOf(held));
        const plan = planEdit(held, wanted, { reuse: mode, repair: mend, exactLength });
        expect(apply(plan, held)).toEqual(Array.from(tokensOf(wanted)));
        const { kept, relocated, computed, cut } = plan;
        expect(kept + relocated + computed).toBe(lengthOf(wanted));
        expect(kept + relocated + cut).toBe(lengthOf(held));
        expect(survivorsOf(plan, lengthOf(held))).toHaveLength(kept + relocated);
        expect(computed).toBeGreaterThanOrEqual(1);
        const last = plan.splices.at(-1)!;
        expect(last.end).toBe(lengthOf(held));
        expect(last.tokens.length).toBeGreaterThan(0);
        let end = -1;
        for (const { start, end: next, tokens } of plan.splices) {
          expect(start).toBeGreaterThan(end);
          expect(next - start + tokens.length).toBeGreaterThan(0);
          end = next;
        }
      }),
      { numRuns: 1000 },
    );
  });

  it("keeps no run that is too short, except at the very front", () => {
    fc.assert(
      fc.property(edited, repair, ({ resident, wanted }, mend) => {
        const plan = planEdit(resident, wanted, { reuse: "suffix", repair: mend, exactLength: 0 });
        for (const { startOld, count } of plan.reused) {
          if (startOld > 0) expect(count).toBeGreaterThanOrEqual(minSurvivors);
        }
      }),
    );
  });

  it("predicts the exact length and the stale tokens that an engine finds cell by cell", async () => {
    const edits = fc.array(fc.tuple(edited, reuse, repair), { minLength: 1, maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(edits, async (rounds) => {
        const sequence = new FakeEngine(() => 0).create();
        let resident: readonly Span[] = [];
        let relocated: readonly Range[] = [];
        for (const [{ resident: first, wanted }, mode, mend] of rounds) {
          for (const next of [first, wanted].filter((spans) => lengthOf(spans) > 0)) {
            const plan = planEdit(resident, next, {
              reuse: mode,
              repair: mend,
              exactLength: sequence.exactLength,
              relocated,
            });
            const run = sequence.run({
              splices: plan.splices,
              maxTokens: 0,
              stopTokens: new Set(),
              top: 0,
              sampling: greedy,
            });
            await run.next();
            expect(sequence.tokens()).toEqual(tokensOf(next));
            expect(plan.exactLength).toBe(sequence.exactLength);
            const computed = new Set(
              plan.reused.flatMap(({ startNew, count }) =>
                Array.from({ length: count }, (_, at) => startNew + at),
              ),
            );
            const stale = [...computed].filter((index) => index >= sequence.exactLength);
            expect(plan.stale).toBe(stale.length);
            const moved = movedCells(tokensOf(resident), tokensOf(next), plan.reused, relocated);
            const beyond = moved.filter((index) => index >= sequence.exactLength);
            expect(plan.relocatedRanges.flatMap(({ start, end }) => indicesIn(start, end))).toEqual(beyond);
            relocated = plan.relocatedRanges;
            resident = next;
          }
        }
      }),
      { numRuns: 60 },
    );
  });

  it("keeps at least as much with suffix reuse as a common prefix would", () => {
    fc.assert(
      fc.property(edited, ({ resident, wanted }) => {
        const options = { exactLength: lengthOf(resident) };
        const suffix = planEdit(resident, wanted, { reuse: "suffix", ...options });
        const prefix = planEdit(resident, wanted, { reuse: "prefix", ...options });
        expect(prefix.relocated).toBe(0);
        expect(prefix.stale).toBe(0);
        expect(suffix.kept + suffix.relocated).toBeGreaterThanOrEqual(prefix.kept);
      }),
    );
  });

  it("recomputes the last token when everything is resident", () => {
    const spans = [message(1, 40), message(2, 40)];
    const same = planEdit(spans, spans, { reuse: "suffix", exactLength: 80 });
    expect(same.splices).toEqual([{ start: 79, end: 80, tokens: tokensOf(spans).slice(79) }]);
    const shorter = planEdit(spans, spans.slice(0, 1), { reuse: "suffix", exactLength: 80 });
    expect(shorter.splices).toEqual([{ start: 39, end: 80, tokens: tokensOf(spans).slice(39, 40) }]);
  });

  it("matches an answer whose last token has no cell, also behind an edit", () => {
    const answer = message(6, 50);
    const resident = [message(1, 40), message(3, 40), ...truncate([answer], 48)];
    const wanted = [message(1, 40), message(9, 30), answer, message(5, 20)];
    const plan = planEdit(resident, wanted, { reuse: "suffix", exactLength: 128 });
    expect(plan).toMatchObject({ kept: 43, relocated: 48 });
  });

  it("recomputes spans that moved backward and keeps those that stayed in order", () => {
    const [a, b, c] = [message(1, 40), message(2, 60), message(3, 80)];
    const plan = planEdit([a!, b!, c!], [a!, c!, b!, message(4, 9)], { reuse: "suffix", exactLength: 180 });
    expect(plan).toMatchObject({ kept: 40, relocated: 80 });
  });

  it("keeps the head and a long tail of a message edited inside, also of two messages", () => {
    const change = (span: Span) => spanOf(span.role, span.tokens.with(100, -1));
    const spans = [message(1, 200), message(2, 200)];
    const plan = planEdit(spans, spans.map(change), { reuse: "suffix", exactLength: 400 });
    // The last token is recomputed.
    expect(plan).toMatchObject({ kept: 100, relocated: 99 + 100 + 98 });
  });

  it("stops prefix reuse where exact cells end", () => {
    const spans = [message(1, 40), message(2, 40)];
    const plan = planEdit(spans, [...spans, message(3, 9)], { reuse: "prefix", exactLength: 50 });
    expect(plan).toMatchObject({ kept: 50, relocated: 0, cut: 30 });
    expect(plan.reason).toContain("where exact cells end");
  });
});

describe("matching spans", () => {
  /** Tries every combination of pairs. */
  function heaviestByTrying(resident: readonly Span[], wanted: readonly Span[]): number {
    const [first, ...rest] = resident;
    if (!first) return 0;
    const without = heaviestByTrying(rest, wanted);
    const index = wanted.findIndex(({ key }) => key === first.key);
    if (index < 0) return without;
    return Math.max(without, first.tokens.length + heaviestByTrying(rest, wanted.slice(index + 1)));
  }

  it("finds the heaviest common subsequence", () => {
    const small = fc.array(
      fc.tuple(name, fc.constantFrom(1, 5)).map(([id, length]) => message(id, length)),
      { maxLength: 7 },
    );
    fc.assert(
      fc.property(small, small, (resident, wanted) => {
        const pairs = matchSpans(resident, wanted);
        let before = [-1, -1];
        for (const [old, next] of pairs) {
          expect(resident[old]!.key).toBe(wanted[next]!.key);
          expect(old).toBeGreaterThan(before[0]!);
          expect(next).toBeGreaterThan(before[1]!);
          before = [old, next];
        }
        const weight = pairs.reduce((sum, [old]) => sum + resident[old]!.tokens.length, 0);
        expect(weight).toBe(heaviestByTrying(resident, wanted));
      }),
      { numRuns: 300 },
    );
  });

  it("matches two thousand messages with scattered edits in less than a second", () => {
    const spans = Array.from({ length: 2000 }, (_, index) => message(50 + index, 30));
    const wanted = spans.flatMap((span, index) => (index % 40 === 7 ? [message(5000 + index, 10)] : [span]));
    wanted.splice(3, 1);
    const start = performance.now();
    const pairs = matchSpans(spans, wanted);
    expect(performance.now() - start).toBeLessThan(1000);
    expect(pairs).toHaveLength(2000 - 50 - 1);
  });
});

const indicesIn = (start: number, end: number) =>
  Array.from({ length: end - start }, (_, index) => start + index);

/** Reused cells whose preceding text has changed, now or earlier; found cell by cell. */
function movedCells(
  tokensOld: Int32Array,
  tokensNew: Int32Array,
  reused: readonly ReusedRange[],
  relocated: readonly Range[],
): number[] {
  const was = new Set(relocated.flatMap(({ start, end }) => indicesIn(start, end)));
  return reused.flatMap(({ startOld, startNew, count }) =>
    indicesIn(0, count).flatMap((index) => {
      const [old, next] = [startOld + index, startNew + index];
      const same = old === next && tokensOld.slice(0, old).every((token, at) => token === tokensNew[at]);
      return was.has(old) || !same ? [next] : [];
    }),
  );
}
