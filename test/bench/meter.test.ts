// The meter follows gaps as the native side does, so multiply-adds are those of the cells that were computed.
import fc from "fast-check";
import { expect, test } from "vitest";
import { afterSplices, fill, gigaMultiplyAdds } from "../../bench/compaction/meter.ts";
import type { CellSplice } from "../../src/engine/addon.ts";

/** True for a gap, cell by cell: the dumber model. */
type Cells = readonly boolean[];

function spliced(cells: Cells, splices: readonly CellSplice[]): Cells {
  let next = [...cells];
  for (const { start, end, count } of splices.toReversed())
    next = [...next.slice(0, start), ...Array<boolean>(count).fill(true), ...next.slice(end)];
  return next;
}

function openIn(ranges: readonly { start: number; end: number }[]): number[] {
  return ranges.flatMap(({ start, end }) => Array.from({ length: end - start }, (_, place) => start + place));
}

const edit = fc.array(fc.tuple(fc.nat(6), fc.nat(6), fc.nat(5)), { maxLength: 4 });
const moves = fc.array(fc.oneof(edit, fc.nat(12)), { maxLength: 12 });

test("gaps after edits and steps are those of a plain array of cells", () => {
  fc.assert(
    fc.property(moves, (all) => {
      let cells: Cells = [];
      let gaps: { start: number; end: number }[] = [];
      for (const move of all) {
        if (typeof move === "number") {
          const open = [...cells.entries()]
            .flatMap(([place, isGap]) => (isGap ? [place] : []))
            .slice(0, move);
          const { filled, rest } = fill(gaps, move);
          expect(openIn(filled)).toEqual(open);
          cells = cells.map((isGap, place) => isGap && !open.includes(place));
          gaps = rest;
        } else {
          let at = 0;
          const splices = move.flatMap(([skip, cut, count]) => {
            const start = Math.min(cells.length, at + skip);
            at = Math.min(cells.length, start + cut) + 1;
            return start < at - 1 || count > 0 ? [{ start, end: at - 1, count }] : [];
          });
          const ordered = splices.filter(
            ({ start }, place) => place === 0 || start > splices[place - 1]!.end,
          );
          cells = spliced(cells, ordered);
          gaps = afterSplices(gaps, ordered);
        }
        expect(openIn(gaps)).toEqual(
          [...cells.entries()].flatMap(([place, isGap]) => (isGap ? [place] : [])),
        );
      }
    }),
  );
});

test("multiply-adds follow from the shapes", () => {
  const shapes = { layers: 2, hidden: 4, ffn: 8, heads: 2, kvHeads: 1, headDim: 2, vocab: 10 };
  // q and output 4 x 4 each, k and v 4 x 2 each, three of 4 x 8; one row of logits is 4 x 10.
  const { linear, attention } = gigaMultiplyAdds({ tokens: 3, pairs: 6, rows: 1 }, shapes);
  expect(linear * 1e9).toBeCloseTo(3 * 2 * (32 + 16 + 96) + 40);
  expect(attention * 1e9).toBeCloseTo(6 * 2 * 2 * 4);
});
