// Profile of a step: every node of our operators by its name in the graph, once per step,
// and no more time in parts than in the whole. How long anything takes is the benches' business.
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { between, linesOf } from "../../bench/profile/parts.ts";
import { readManifest } from "../../models/manifest.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { ProfileEntry, Runner } from "../../src/engine/addon.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";
import { greedy, openTinyPanels, prefill, tokensOf } from "../support/tiny-runner.ts";

let runner: Runner;
beforeAll(async () => {
  runner = await openTinyPanels("parts", { pages: 64, kvType: "f16" });
});
afterAll(() => runner?.close());

const runsOf = (parts: readonly ProfileEntry[], pattern: RegExp) =>
  parts.filter(({ name }) => pattern.test(name)).map(({ runs }) => runs);

async function decode(id: number) {
  const { length } = runner.sequence(id);
  runner.splice(id, [{ start: length, end: length, count: 1 }]);
  const sample = { ...greedy, generatedFrom: length };
  return runner.step([{ sequence: id, tokens: Int32Array.of(7), sample }]);
}

describe("the parts of steps", () => {
  test("are the nodes of each layer, embedding and head, each run once a step", async () => {
    const { layers } = runner.describe();
    const before = runner.profile();
    const id = await prefill(runner, tokensOf(40), 20);
    await decode(id);
    runner.release(id);
    const after = runner.profile();
    expect(after.map(({ name }) => name)).toEqual(before.map(({ name }) => name));
    const counted = after.map((part, place) => ({ ...part, runs: part.runs - before[place]!.runs }));
    const eachLayer = new Array<number>(layers).fill(3);
    for (const node of [/PagedAttention$/, /qkv_proj.Linear$/, /o_proj.Linear$/, /mlp.Linear$/, /down_proj/])
      expect(runsOf(counted, node)).toEqual(eachLayer);
    for (const once of [/embed_tokens/, /^.lm_head/, /^graph$/, /^sampler$/])
      expect(runsOf(counted, once)).toEqual([3]);
    expect(runsOf(counted, /^norms$/)).toEqual([3 * (2 * layers + 1)]);
    // Exactly the nodes of our operators have a path.
    expect(runsOf(counted, /^.model|^.lm_head/)).toHaveLength(5 * layers + 2);
  });

  test("take no longer than the part that contains them", async () => {
    const id = await prefill(runner, tokensOf(40));
    for (let step = 0; step < 20; step++) {
      const before = runner.profile();
      const begin = performance.now();
      const { ms } = await decode(id);
      const whole = performance.now() - begin;
      const spent = between(before, runner.profile());
      const nodes = [...spent].filter(([name]) => name.startsWith("/")).map(([, own]) => own);
      const [graph, norms, sampler] = ["graph", "norms", "sampler"].map((name) => spent.get(name)!);
      const inNodes = nodes.reduce((sum, own) => sum + own, 0);
      expect(Math.min(...nodes, norms!, sampler!)).toBeGreaterThan(0);
      expect(norms).toBeLessThan(inNodes);
      expect(inNodes).toBeLessThan(graph!);
      expect(graph! + sampler!).toBeLessThanOrEqual(ms);
      expect(ms).toBeLessThan(whole);
    }
    runner.release(id);
  });

  test("cover the graph in the lines of the profile, and the rest is not negative", async () => {
    const manifest = readManifest(
      await ensureTinyModel(join(packageRoot(), "build", "tiny", "parts"), {
        source: "mixed",
        weights: "exact",
      }),
    );
    const id = await prefill(runner, tokensOf(40));
    const before = runner.profile();
    const { ms } = await decode(id);
    const step = { parts: between(before, runner.profile()), addon: ms, whole: ms + 1 };
    const lines = linesOf([step], { rows: 1, depth: 40 }, manifest, 100);
    const own = lines.map((line) => line.ms[0]!);
    for (const value of own) expect(value).toBeGreaterThanOrEqual(0);
    const place = lines.findIndex(({ part }) => part === "the graph");
    const inGraph = own.slice(0, place).reduce((sum, value) => sum + value, 0);
    expect(inGraph).toBeCloseTo(own[place]!, 9);
    runner.release(id);
  });

  test("are not available during a step", async () => {
    const id = await prefill(runner, tokensOf(40));
    const step = decode(id);
    expect(() => runner.profile()).toThrowError(expect.objectContaining({ code: "ENGINE_BUSY" }));
    await step;
    expect(runner.profile().length).toBeGreaterThan(0);
    runner.release(id);
  });
});
