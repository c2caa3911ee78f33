// The oracle (docs/design.md, Tests): what an edited sequence must share with a cold prefill of the same tokens.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import { distance, edit, nextLogprobs, openTiny, prefill, tokensOf } from "../support/tiny-runner.ts";

let runner: Runner;
const { kvHeads, headDim, ropeBase } = { kvHeads: 2, headDim: 16, ropeBase: 10_000 };

beforeAll(async () => {
  runner = await openTiny("splice");
});
afterAll(() => runner?.close());

function spliced(tokens: Int32Array, start: number, end: number, insert: Int32Array): Int32Array {
  return Int32Array.from([...tokens.subarray(0, start), ...insert, ...tokens.subarray(end)]);
}

/** Keys of layer 0 at their current positions: rotated by index - birth, which equals rotating the query. */
function standingKeys(id: SequenceId): Float64Array {
  const { births, keys } = runner.inspect(id, 0);
  const out = Float64Array.from(keys!);
  const half = headDim / 2;
  for (let cell = 0; cell < births.length; cell++) {
    const delta = cell - births[cell]!;
    for (let head = 0; head < kvHeads; head++) {
      const at = (cell * kvHeads + head) * headDim;
      for (let d = 0; d < half; d++) {
        const angle = delta * ropeBase ** (-d / half);
        const [x, y] = [out[at + d]!, out[at + half + d]!];
        out[at + d] = x * Math.cos(angle) - y * Math.sin(angle);
        out[at + half + d] = x * Math.sin(angle) + y * Math.cos(angle);
      }
    }
  }
  return out;
}

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length);
  let most = 0;
  for (let i = 0; i < a.length; i++) most = Math.max(most, Math.abs(a[i]! - b[i]!));
  return most;
}

describe("the oracle", () => {
  test("(9) a kept prefix with new text behind it equals a cold prefill bit for bit", async () => {
    const tokens = tokensOf(300);
    const tail = tokensOf(60, 5);
    const edited = await prefill(runner, tokens, 100);
    await edit(runner, edited, [{ start: 200, end: 300, tokens: tail }]);
    const cold = await prefill(runner, Int32Array.from([...tokens.subarray(0, 200), ...tail]), 100);
    expect(runner.sequence(edited).exactLength).toBe(260);
    expect(runner.inspect(edited, 0).keys!.subarray(0, 200 * 32)).toEqual(
      runner.inspect(cold, 0).keys!.subarray(0, 200 * 32),
    );
    expect(runner.inspect(edited, 1).values!.subarray(0, 200 * 32)).toEqual(
      runner.inspect(cold, 1).values!.subarray(0, 200 * 32),
    );
    expect(distance(await nextLogprobs(runner, edited), await nextLogprobs(runner, cold))).toBeLessThan(1e-5);
    for (const id of [edited, cold]) runner.release(id);
  });

  test("an identity splice of whole chunks changes no bit of what is computed next", async () => {
    const tokens = tokensOf(320);
    const plain = await prefill(runner, tokens, 64);
    const edited = await prefill(runner, tokens, 64);
    await edit(runner, edited, [{ start: 128, end: 192, tokens: tokens.subarray(128, 192) }]);
    expect(runner.inspect(edited, 1).keys).toEqual(runner.inspect(plain, 1).keys);
    expect(await nextLogprobs(runner, edited)).toEqual(await nextLogprobs(runner, plain));
    for (const id of [plain, edited]) runner.release(id);
  });

  test("after any splice the keys of layer 0 equal a cold prefill's at the new positions", async () => {
    const tokens = tokensOf(400);
    for (const [start, end, count] of [
      [40, 240, 30],
      [0, 10, 90],
      [100, 100, 77],
      [16, 32, 0],
    ] as const) {
      const insert = tokensOf(count, 9);
      const edited = await prefill(runner, tokens);
      await edit(runner, edited, [{ start, end, tokens: insert }]);
      const cold = await prefill(runner, spliced(tokens, start, end, insert));
      expect(largestDifference(standingKeys(edited), standingKeys(cold))).toBeLessThan(2e-5);
      for (const id of [edited, cold]) runner.release(id);
    }
  });

  test("(5) survivors keep every bit of their keys and values in all layers", async () => {
    const tokens = tokensOf(256);
    const id = await prefill(runner, tokens);
    const before = [0, 1].map((layer) => runner.inspect(id, layer));
    await edit(runner, id, [{ start: 30, end: 130, tokens: tokensOf(21, 3) }]);
    for (const [layer, was] of before.entries()) {
      const is = runner.inspect(id, layer);
      expect(is.keys!.subarray((30 + 21) * 32)).toEqual(was.keys!.subarray(130 * 32));
      expect(is.values!.subarray((30 + 21) * 32)).toEqual(was.values!.subarray(130 * 32));
    }
    runner.release(id);
  });

  test("a hundred edits with the same net shift equal one: survivors bit for bit, logits up to rounding", async () => {
    const tokens = tokensOf(200);
    const insert = tokensOf(40, 2);
    const once = await prefill(runner, tokens);
    await edit(runner, once, [{ start: 20, end: 60, tokens: insert.subarray(0, 13) }]);
    const often = await prefill(runner, tokens);
    runner.splice(often, [{ start: 20, end: 60, count: 0 }]);
    for (let round = 0; round < 99; round++) {
      const count = 1 + (round % 30);
      await edit(runner, often, [{ start: 20, end: 20, tokens: insert.subarray(0, count) }]);
      runner.splice(often, [{ start: 20, end: 20 + count, count: 0 }]);
    }
    await edit(runner, often, [{ start: 20, end: 20, tokens: insert.subarray(0, 13) }]);
    // The inserted cells lie in other slots, so their sums were taken tile by tile in another order.
    const survivors = (id: SequenceId) => runner.inspect(id, 1).keys!.subarray((20 + 13) * 32);
    expect(survivors(often)).toEqual(survivors(once));
    expect(runner.sequence(often)).toEqual(runner.sequence(once));
    expect(distance(await nextLogprobs(runner, often), await nextLogprobs(runner, once))).toBeLessThan(1e-5);
    runner.check();
    for (const id of [once, often]) runner.release(id);
  });

  test("repair from front to back extends the exact length to the end, and the logits equal a cold prefill's", async () => {
    const tokens = tokensOf(300);
    const insert = tokensOf(20, 4);
    const edited = await prefill(runner, tokens);
    await edit(runner, edited, [{ start: 50, end: 150, tokens: insert }]);
    expect(runner.sequence(edited)).toMatchObject({ length: 220, exactLength: 70, deltas: 2 });
    const wanted = spliced(tokens, 50, 150, insert);
    const cold = await prefill(runner, wanted);
    const stale = distance(await nextLogprobs(runner, edited), await nextLogprobs(runner, cold));
    for (let start = 70; start < 220; start += 50) {
      await edit(runner, edited, [{ start, end: start + 50, tokens: wanted.subarray(start, start + 50) }]);
      expect(runner.sequence(edited).exactLength).toBe(start + 50);
    }
    expect(runner.sequence(edited).deltas).toBe(1);
    const repaired = distance(await nextLogprobs(runner, edited), await nextLogprobs(runner, cold));
    expect(repaired).toBeLessThan(1e-5);
    expect(stale).toBeGreaterThan(10 * repaired);
    for (const id of [edited, cold]) runner.release(id);
  });

  test("a fork shares pages, and an edit of it does not change its source", async () => {
    const tokens = tokensOf(160);
    const source = await prefill(runner, tokens);
    const before = runner.inspect(source, 1);
    const { pagesUsed } = runner.stats();
    const child = runner.fork(source, 150);
    expect(runner.stats().pagesUsed).toBe(pagesUsed);
    await edit(runner, child, [{ start: 16, end: 96, tokens: tokensOf(5, 8) }]);
    expect(runner.inspect(source, 1)).toEqual(before);
    runner.release(source);
    expect(runner.inspect(child, 0).tokens.length).toBe(75);
    runner.release(child);
    expect(runner.stats().pagesUsed).toBe(0);
  });

  test("adopted cells are appended without being computed", async () => {
    const archived = await prefill(runner, tokensOf(64, 6));
    const id = await prefill(runner, tokensOf(100));
    const { tokensComputed } = runner.stats();
    runner.adopt(id, archived, 16, 48);
    expect(runner.stats().tokensComputed).toBe(tokensComputed);
    expect(runner.sequence(id)).toMatchObject({ length: 132, exactLength: 100, deltas: 2 });
    const cold = await prefill(
      runner,
      Int32Array.from([...tokensOf(100), ...tokensOf(64, 6).subarray(16, 48)]),
    );
    expect(largestDifference(standingKeys(id), standingKeys(cold))).toBeLessThan(2e-5);
    for (const one of [archived, id, cold]) runner.release(one);
  });
});
