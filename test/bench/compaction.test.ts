// The compaction bench on the tiny model: what it says was computed is what the model was given, every measurement
// begins with the whole conversation, and nothing stays behind.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { arms, gridOf } from "../../bench/compaction/grid.ts";
import { InProcessServer } from "../../bench/compaction/in-process-server.ts";
import { Measurer } from "../../bench/compaction/measure.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";

const context = 2000;
let directory: string;
let server: InProcessServer;
let measurer: Measurer;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "pocket-bench-"));
  const folder = await ensureTinyModel(directory, { context: 4096 });
  server = await InProcessServer.open({ folder, tokens: 8192, kv: "f32" });
  const text = readFileSync(join(packageRoot(), "src", "config/config.ts"), "utf8").repeat(4);
  measurer = new Measurer(server, text, context);
  const { cacheUsage, promptTokens } = await measurer.prefill();
  expect(cacheUsage.computed).toBe(promptTokens);
  expect(promptTokens).toBeGreaterThan(context);
});
afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

test("a condition computes the summary under suffix, what is behind it under prefix, everything under none", async () => {
  const { cells } = gridOf("headline", [context], 1);
  const usual = cells.filter(
    ({ place, share, summary }) => place === "front" && share === 0.5 && summary === 256,
  );
  const { removed, inserted, readings } = (await measurer.condition(usual))!;
  expect(removed).toBeGreaterThan(inserted);
  const of = (name: string) => readings.get(name)![0]!;
  const [suffix, prefix, none, ideal] = [of("suffix"), of("prefix"), of("none"), of("ideal")];
  // Runs of survivors that are shorter than 16 tokens are computed as well.
  expect(suffix.cacheUsage.computed).toBeLessThanOrEqual(inserted + 16);
  expect(suffix.cacheUsage.relocated).toBeGreaterThan(0);
  expect(prefix.cacheUsage.kept).toBe(suffix.cacheUsage.kept);
  expect(prefix.cacheUsage.computed + prefix.cacheUsage.kept).toBe(prefix.promptTokens);
  expect(none.cacheUsage.computed).toBe(none.promptTokens);
  expect(ideal.cacheUsage.computed).toBe(suffix.cacheUsage.computed);
  expect(of("forget").cacheUsage.relocated).toBe(0);
  expect(Math.abs(of("forget").cacheUsage.computed - prefix.cacheUsage.computed)).toBeLessThan(16);
  const mended = of("repair: 16").cacheUsage.computed - suffix.cacheUsage.computed;
  expect(mended).toBeGreaterThanOrEqual(8);
  expect(mended).toBeLessThanOrEqual(32);
  expect(of("repair: assistant").cacheUsage.computed).toBeGreaterThan(suffix.cacheUsage.computed);
  // Tokens and pairs are counted from the steps, and agree with the reported cache usage.
  const { layers, heads, headDim } = server.manifest.shapes;
  const pairs = (none.attention * 1e9) / (2 * layers * heads * headDim);
  expect(pairs).toBeCloseTo((none.promptTokens * (none.promptTokens + 1)) / 2, -1);
  expect(suffix.linear).toBeLessThan(prefix.linear);
  expect(suffix.attention).toBeLessThan(ideal.attention);
  expect(suffix.ms).toBeGreaterThan(0);
});

test("a chain computes its summaries and one shift more each time", async () => {
  const readings = (await measurer.chain({ context, length: 4, share: 0.75, summary: 64 }))!;
  expect(readings.map(({ shifts }) => shifts)).toEqual([2, 3, 4, 5]);
  for (const { cacheUsage } of readings) expect(cacheUsage.computed).toBeLessThan(90);
  expect(await measurer.chain({ context, length: 500, share: 0.75, summary: 64 })).toBeUndefined();
});

test("the spliced row over HTTP computes what it inserts", async () => {
  const splice = { start: 64, end: 464, count: 50 };
  const readings = await measurer.splice(1500, splice, 1);
  expect(readings.get("suffix")![0]!.cacheUsage).toMatchObject({ kept: 64, relocated: 1035, computed: 51 });
  expect(readings.get("ideal")![0]!.cacheUsage).toMatchObject({ kept: 1100, relocated: 0, computed: 50 });
  expect(readings.get("in place, nothing behind")![0]!.cacheUsage).toMatchObject({ kept: 64, computed: 50 });
});

test("a summary that is no shorter than what it replaces is no condition", async () => {
  const cell = {
    context: 1000,
    place: "front",
    share: 0.25,
    summary: 1024,
    arm: arms.suffix,
    repeat: 1,
  } as const;
  expect(await measurer.condition([cell])).toBeUndefined();
});
