import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { alternate } from "../../bench/engine/peer-engine.ts";
import { engineRows, isChosen, text } from "../../bench/engine/rows.ts";
import { median, quantile } from "../../bench/support/samples.ts";

describe("samples", () => {
  test("the median has as many below as above", () => {
    fc.assert(
      fc.property(fc.array(fc.double({ noNaN: true, min: -1e6, max: 1e6 }), { minLength: 1 }), (values) => {
        const middle = median(values);
        const below = values.filter((value) => value < middle).length;
        const above = values.filter((value) => value > middle).length;
        expect(Math.max(below, above)).toBeLessThanOrEqual(values.length / 2);
        expect(quantile(values, 0)).toBe(Math.min(...values));
        expect(quantile(values, 1)).toBe(Math.max(...values));
      }),
    );
  });

  test("of none there is no number", () => {
    expect(median([])).toBeNaN();
  });

  test("a quantile is the naive one by sorting and counting, and lies between its neighbours in proportion", () => {
    expect(quantile([4, 1, 3, 2], 0.5)).toBe(2.5);
    expect(quantile([7], 0.99)).toBe(7);
    expect(quantile([], 0.5)).toBeNaN();
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: 1, maxLength: 200 }), (values) => {
        const cut = quantile(values, 0.99);
        const below = values.filter((value) => value <= cut).length;
        expect(below).toBeGreaterThanOrEqual(Math.floor(0.99 * (values.length - 1)) + 1);
        expect(quantile(values, 0)).toBe(Math.min(...values));
        expect(quantile(values, 1)).toBe(Math.max(...values));
      }),
    );
  });
});

describe("turns", () => {
  test("go forth and back, after one each that is not counted", async () => {
    const order: string[] = [];
    const run = (name: string) => async () => order.push(name);
    const results = await alternate([run("a"), run("b")], 3);
    expect(order.join("")).toBe("ab" + "ab" + "ba" + "ab");
    expect(results).toEqual([
      [3, 6, 7],
      [4, 5, 8],
    ]);
  });

  test("without a warm-up every turn counts", async () => {
    let calls = 0;
    expect(await alternate([async () => ++calls], 2, { warm: false })).toEqual([[1, 2]]);
  });

  test("that take too long are measured once and count, also when others are short", async () => {
    const calls = [0, 0];
    const long = () => new Promise<number>((done) => setTimeout(() => done(++calls[0]!), 250));
    const short = async () => ++calls[1]!;
    expect(await alternate([long, short], 3, { longest: 200 })).toEqual([[1], [2, 3, 4]]);
    expect(await alternate([long], 3, { warm: false, longest: 200 })).toEqual([[2]]);
  });
});

describe("rows of the engine bench", () => {
  const choice = { prefillDepths: [0, 8192], decodeDepths: [0, 2048], words: [], context: 32_768 };

  test("come deepest first behind the cold prompt, and are named as llama-bench names its own", () => {
    expect(engineRows(choice).map(({ name }) => name)).toEqual([
      "cold8192 @ d0",
      "pp512 @ d8192",
      "tg32 @ d2048",
      "pp512 @ d0",
      "tg32 @ d0",
      "tg32 x8 @ d0",
    ]);
  });

  test("that no model of this context can hold are left out", () => {
    const names = engineRows({ ...choice, context: 2048 }).map(({ name }) => name);
    expect(names).toEqual(["pp512 @ d0", "tg32 @ d0", "tg32 x8 @ d0"]);
  });

  test("are chosen by words that must all occur", () => {
    expect(isChosen("tg32 x8 @ d0", ["pp512", "tg32 d0"])).toBe(true);
    expect(isChosen("tg32 @ d2048", ["pp512", "tg32 d0"])).toBe(false);
    expect(isChosen("anything", [])).toBe(true);
  });

  test("are filled with ids that the vocabulary has, and other ones for another salt", () => {
    const [one, other] = [text(600, 1, 500), text(600, 2, 500)];
    expect(Math.max(...one)).toBeLessThan(500);
    expect(one[0]).not.toBe(other[0]);
  });
});
