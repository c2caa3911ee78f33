// Faults of the native side: positions, key rotation, the last token of an answer, KV files. Tiny model in f32, so
// that results differ by the order of a sum only.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { KvType, Runner, SequenceId } from "../../src/engine/addon.ts";
import { Engine } from "../../src/engine/engine.ts";
import { append, collect, job } from "../engine/rig.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";
import { distance, edit, nextLogprobs, openTiny, prefill, tokensOf } from "../support/tiny-runner.ts";

const folder = mkdtempSync(join(tmpdir(), "pocket-faults-"));
let runner: Runner;
beforeAll(async () => {
  runner = await openTiny("faults_native");
});
afterAll(async () => {
  await runner?.close();
  rmSync(folder, { recursive: true });
});

const tokensIn = (id: SequenceId) => Array.from(runner.inspect(id).tokens);
const cut = (start: number, end: number) => ({ start, end, tokens: new Int32Array(0) });

test("after several deletions in one edit every remaining token has the position that a list gives it", async () => {
  const id = await prefill(runner, Int32Array.from([..."abcdefghj"].map((letter) => letter.charCodeAt(0))));
  await edit(runner, id, [cut(2, 4), cut(6, 7)]);
  expect(String.fromCharCode(...tokensIn(id))).toBe("abefhj");
  runner.release(id);
  const holes = fc.uniqueArray(fc.integer({ min: 0, max: 119 }), { minLength: 2, maxLength: 16 });
  await fc.assert(
    fc.asyncProperty(holes, async (points) => {
      const sorted = points.sort((a, b) => a - b).slice(0, points.length - (points.length % 2));
      const cuts = sorted.flatMap((start, rank) => (rank % 2 === 0 ? [cut(start, sorted[rank + 1]!)] : []));
      const own = await prefill(runner, tokensOf(120));
      await edit(runner, own, cuts);
      const list = Array.from(tokensOf(120));
      for (const { start, end } of cuts.reverse()) list.splice(start, end - start);
      expect(tokensIn(own)).toEqual(list);
      runner.check();
      runner.release(own);
    }),
    { numRuns: 30 },
  );
});

test("an edit shifts keys of every number format with a bounded error", async () => {
  const tokens = tokensOf(160);
  const bounds: Record<KvType, number> = { f32: 1e-4, f16: 0.01, bf16: 0.05, int8: 0.1 };
  for (const [kvType, bound] of Object.entries(bounds) as [KvType, number][]) {
    const own = await openTiny("faults_native", { kvType, pages: 32 });
    const id = await prefill(own, tokens);
    // Shifted and back: nothing in front of a survivor has changed, so a cold prefill is what it must equal.
    await edit(own, id, [{ start: 40, end: 40, tokens: tokensOf(30, 3) }]);
    await edit(own, id, [cut(40, 70)]);
    const cold = await prefill(own, tokens);
    const far = distance(await nextLogprobs(own, id), await nextLogprobs(own, cold));
    expect(far, kvType).toBeLessThan(bound);
    await own.close();
  }
});

test("a model with YaRN scaling is refused at import", async () => {
  const metadata = { "qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": { float: 4 } } as const;
  await expect(ensureTinyModel(join(folder, "yarn"), { metadata })).rejects.toMatchObject({
    code: "UNSUPPORTED_MODEL",
  });
});

test("a hundred shifts do not change the stored keys", async () => {
  const id = await prefill(runner, tokensOf(80));
  const before = runner.inspect(id, 1).keys!;
  for (let shift = 0; shift < 100; shift++) {
    await edit(runner, id, [
      { start: 0, end: shift === 0 ? 0 : 3, tokens: tokensOf(3 + (shift % 2), shift) },
    ]);
    await edit(runner, id, [cut(0, shift % 2)]);
  }
  const cells = runner.inspect(id, 1);
  expect(cells.keys!.subarray(cells.keys!.length - before.length)).toEqual(before);
  runner.release(id);
});

test("the same shift in one, ten and a hundred edits gives the same keys, bit for bit", async () => {
  const ways = [1, 10, 100].map(async (edits) => {
    const own = await openTiny("faults_native", { kvType: "f16", pages: 32 });
    const id = await prefill(own, tokensOf(300));
    for (let i = 0; i < edits; i++) await edit(own, id, [cut(100, 100 + 100 / edits)]);
    const logprobs = await nextLogprobs(own, id);
    const { keys } = own.inspect(id, 1);
    await own.close();
    return { keys, logprobs };
  });
  const [one, ten, hundred] = await Promise.all(ways);
  expect(ten).toEqual(one);
  expect(hundred).toEqual(one);
});

test("after a shift the logits stay near those of a cold prefill", async () => {
  const tokens = tokensOf(240);
  const summary = tokensOf(20, 5);
  const id = await prefill(runner, tokens);
  await edit(runner, id, [{ start: 60, end: 120, tokens: summary }]);
  const whole = Int32Array.from([...tokens.subarray(0, 60), ...summary, ...tokens.subarray(120)]);
  const cold = await prefill(runner, whole);
  const expected = await nextLogprobs(runner, cold);
  const near = divergence(expected, await nextLogprobs(runner, id));
  // As far as it would be if the same tokens stood in another order.
  const wrong = await prefill(runner, Int32Array.from([...tokens.subarray(120), ...tokens.subarray(0, 80)]));
  const far = divergence(expected, await nextLogprobs(runner, wrong));
  expect(runner.sequence(id)).toMatchObject({ length: 200, exactLength: 80 });
  // Random weights look everywhere alike; bounds for real models stand with the golden numbers.
  expect(near).toBeLessThan(1);
  expect(near).toBeLessThan(far / 2);
  for (const one of [id, cold, wrong]) runner.release(one);
});

test("the last token of an answer has no cell, and edits at the tail are right", async () => {
  const engine = new Engine(await openTiny("faults_native"), { stepTokens: 64 });
  const prompt = Array.from(tokensOf(33));
  const sequence = engine.create();
  const said = await collect(sequence.run(job([append(sequence, prompt)], 9)));
  expect(Array.from(sequence.tokens())).toEqual([...prompt, ...said.slice(0, -1)]);
  const stopped = engine.create();
  const stopTokens = new Set([said[4]!]);
  const short = await collect(stopped.run(job([append(stopped, prompt)], 9, { stopTokens })));
  expect(short).toEqual(said.slice(0, said.indexOf(said[4]!) + 1));
  expect(Array.from(stopped.tokens())).toEqual([...prompt, ...short.slice(0, -1)]);
  // An edit that ends at the last cell, one that replaces only the last, one that continues behind it.
  for (const [start, tokens] of [
    [20, [9, 8, 7]],
    [22, [6]],
    [23, [5, 4]],
  ] as const) {
    const end = sequence.length;
    const whole = [...Array.from(sequence.tokens()).slice(0, start), ...tokens];
    const next = await collect(sequence.run(job([{ start, end, tokens: Int32Array.from(tokens) }], 1)));
    const cold = engine.create();
    expect(next).toEqual(await collect(cold.run(job([append(cold, whole)], 1))));
    expect(Array.from(sequence.tokens())).toEqual(whole);
  }
  await engine.close();
});

test("truncating to 0, 1 and k tokens and continuing equals a cold start", async () => {
  for (const kept of [0, 1, 37]) {
    const id = await prefill(runner, tokensOf(90));
    await edit(runner, id, [cut(kept, 90)]);
    await edit(runner, id, [{ start: kept, end: kept, tokens: tokensOf(20, 6) }]);
    const cold = await prefill(runner, Int32Array.from([...tokensOf(kept), ...tokensOf(20, 6)]));
    expect(distance(await nextLogprobs(runner, id), await nextLogprobs(runner, cold))).toBeLessThan(1e-5);
    expect(runner.sequence(id).exactLength).toBe(kept + 20);
    for (const one of [id, cold]) runner.release(one);
  }
});

test("a new cell is rotated for its position, in one step and token by token", async () => {
  const tokens = tokensOf(60);
  const whole = await prefill(runner, tokens);
  const byOne = await prefill(runner, tokens, 1);
  expect(Array.from(runner.inspect(byOne).births)).toEqual(Array.from(tokens, (_, index) => index));
  const [a, b] = [runner.inspect(whole, 1).keys!, runner.inspect(byOne, 1).keys!];
  expect(Math.max(...a.map((value, place) => Math.abs(value - b[place]!)))).toBeLessThan(1e-5);
  for (const one of [whole, byOne]) runner.release(one);
});

test("a KV file of another layout, model, format or rotation, or with a flipped bit, is refused", async () => {
  const id = await prefill(runner, tokensOf(20));
  const [file, broken] = [join(folder, "whole.kv"), join(folder, "broken.kv")];
  await runner.save(id, file);
  const whole = readFileSync(file);
  // Every field of the header, then a sample of the rest.
  const places = [...Array.from({ length: 256 }, (_, at) => at)];
  for (let at = 256; at < whole.length; at += 211) places.push(at);
  for (const at of places) {
    const copy = Uint8Array.from(whole);
    copy[at]! ^= 1 << (at % 8);
    writeFileSync(broken, copy);
    await expect(runner.load(broken), `bit of byte ${at}`).rejects.toMatchObject({ code: "KV_FILE_REFUSED" });
  }
  const bf16 = await openTiny("faults_native", { kvType: "bf16", pages: 8 });
  await expect(bf16.load(file)).rejects.toMatchObject({ code: "KV_FILE_REFUSED" });
  await bf16.close();
  runner.release(id);
  expect(runner.stats().pagesUsed).toBe(0);
});

test("a fork that ends inside a page and its source both continue, for every fill of the page", async () => {
  const tokens = tokensOf(32);
  const source = await prefill(runner, tokens);
  for (let shared = 16; shared <= 32; shared++) {
    const fork = runner.fork(source, shared);
    await edit(runner, fork, [{ start: shared, end: shared, tokens: tokensOf(40, shared) }]);
    const cold = await prefill(
      runner,
      Int32Array.from([...tokens.subarray(0, shared), ...tokensOf(40, shared)]),
    );
    expect(distance(await nextLogprobs(runner, fork), await nextLogprobs(runner, cold))).toBeLessThan(1e-5);
    expect(tokensIn(source)).toEqual(Array.from(tokens));
    runner.check();
    for (const one of [fork, cold]) runner.release(one);
  }
  runner.release(source);
});

test("save and restore are complete or fail, and reuse every cell", async () => {
  const engine = new Engine(await openTiny("faults_native", { pages: 16 }), { stepTokens: 64 });
  const [empty, sequence] = [engine.create(), engine.create()];
  const [none, some] = [join(folder, "none.kv"), join(folder, "some.kv")];
  await empty.save(none);
  expect((await engine.load(none)).length).toBe(0);
  await collect(sequence.run(job([append(sequence, Array.from(tokensOf(100)))], 0)));
  await sequence.save(some);
  const resident = sequence.tokens();
  const stats = engine.stats();
  for (const name of ["missing.kv", "."]) {
    await expect(engine.load(join(folder, name))).rejects.toMatchObject({ code: "KV_FILE_REFUSED" });
  }
  writeFileSync(join(folder, "half.kv"), readFileSync(some).subarray(0, 5000));
  await expect(engine.load(join(folder, "half.kv"))).rejects.toMatchObject({ code: "KV_FILE_REFUSED" });
  // A refused file has overwritten nothing: what is resident answers as before.
  expect(engine.stats()).toEqual(stats);
  expect(sequence.tokens()).toEqual(resident);
  const restored = await engine.load(some);
  const { tokensComputed } = engine.stats();
  const next = (one: typeof restored) => collect(one.run(job([append(one, [3])], 1)));
  expect(await next(restored)).toEqual(await next(sequence));
  expect(engine.stats().tokensComputed - tokensComputed).toBe(2);
  await engine.close();
});

/** Kullback-Leibler divergence over the tokens that both know. */
function divergence(was: ReadonlyMap<number, number>, is: ReadonlyMap<number, number>): number {
  let sum = 0;
  for (const [token, logprob] of was) {
    const other = is.get(token);
    if (other !== undefined) sum += Math.exp(logprob) * (logprob - other);
  }
  return sum;
}
