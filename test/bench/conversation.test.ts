// The conversations of the compaction bench: longer ones begin with shorter ones, removals leave the latest exchange,
// summaries have exactly the tokens they are asked for.
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  exchangesOf,
  fitting,
  pieces,
  promptOf,
  removalOf,
  summaryText,
} from "../../bench/compaction/conversation.ts";
import { arms, gridNames, gridOf } from "../../bench/compaction/grid.ts";
import type { Message } from "../../src/chat/chat.ts";

const count = (text: string) => text.split(/\s+/).filter(Boolean).length;
const length = (messages: readonly Message[]) =>
  messages.reduce((sum, { content }) => sum + 5 + count(content), 0);
const text = Array.from({ length: 4000 }, (_, line) => `const value${line} = compute(${line}, other);`).join(
  "\n",
);

test("a longer context begins with a shorter one and is at most as long as asked for", () => {
  const exchanges = exchangesOf(text, count, 40);
  const short = fitting(exchanges, 1000, length);
  const long = fitting(exchanges, 4000, length);
  expect(long.slice(0, short.length)).toEqual(short);
  expect(length(promptOf(long))).toBeLessThanOrEqual(4000);
  expect(length(promptOf(exchanges.slice(0, long.length + 1)))).toBeGreaterThan(4000);
});

test("a removal is a part of the exchanges and never the latest one, and its pieces are all of it", () => {
  const given = [
    fc.integer({ min: 2, max: 200 }),
    fc.constantFrom("front", "middle", "end"),
    fc.double({ min: 0.01, max: 1, noNaN: true }),
    fc.integer({ min: 1, max: 30 }),
  ] as const;
  fc.assert(
    fc.property(...given, (exchanges, place, share, length) => {
      const { start, end } = removalOf(exchanges, place as "front", share);
      expect(start).toBeGreaterThanOrEqual(0);
      expect(end).toBeGreaterThan(start);
      expect(end).toBeLessThanOrEqual(exchanges - 1);
      const all = pieces({ start, end }, length);
      if (end - start < length) {
        expect(all).toBeUndefined();
        return;
      }
      expect(all).toHaveLength(length);
      expect(all!.every((piece) => piece.start < piece.end)).toBe(true);
      expect([all![0]!.start, ...all!.map((piece) => piece.end)]).toEqual([
        ...all!.map((piece) => piece.start),
        end,
      ]);
    }),
  );
});

test.each([64, 256, 1024])("a summary of %i tokens has them, and each is another text", (tokens) => {
  const summaries = [1, 2, 3].map((number) => summaryText(tokens, number, count));
  expect(summaries.map(count)).toEqual([tokens, tokens, tokens]);
  expect(new Set(summaries).size).toBe(3);
});

test("the grids have every arm, and a dear one on a long context once", () => {
  for (const name of gridNames) {
    const { cells, chains } = gridOf(name, [2000, 16_000], 3);
    expect(chains.length).toBeGreaterThan(0);
    for (const { arm, context, repeat } of cells)
      expect(repeat).toBe(arm.isDear && context === 16_000 ? 1 : 3);
    const names = new Set(cells.map(({ arm }) => arm.name));
    expect(names.size).toBe(name === "quick" ? 3 : Object.keys(arms).length);
  }
});
