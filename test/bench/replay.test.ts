// Recordings of the scripted agent and their cost on a real engine: the cost model reports the engine's cache usage.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { InProcessServer } from "../../bench/compaction/in-process-server.ts";
import { record, type Script } from "../../bench/replay/agent.ts";
import { play } from "../../bench/replay/replay.ts";
import { scripts } from "../../bench/replay/scripts.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import { readRecording } from "../../src/harness/recording.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";

let directory: string;
let workspace: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "pocket-bench-"));
  workspace = join(directory, "workspace");
  mkdirSync(workspace);
  for (let file = 0; file < 7; file++)
    writeFileSync(join(workspace, `f${file}.txt`), `File ${file} tells of pages and slots.\n`.repeat(8));
});
afterAll(() => rmSync(directory, { recursive: true }));

const script: Script = {
  name: "short",
  task: "Read all files.",
  moves: Array.from({ length: 7 }, (_, file) => ({
    say: `I read file ${file}.`,
    tool: "read",
    given: { path: `f${file}.txt` },
  })),
  answer: "They tell of pages.",
  compactsAt: 300,
  keeps: 1,
};

test("a script is recorded with the real tools' results, the same each time", async () => {
  const text = await record(script, workspace, 600);
  const { steps, summaries } = readRecording("short", text);
  expect(steps.filter(({ kind }) => kind === "turn").length).toBe(8 + summaries.size);
  expect(summaries.size).toBeGreaterThanOrEqual(2);
  const again = readRecording("short", await record(script, workspace, 600));
  expect(again.steps).toEqual(steps);
  expect(text).toContain("File 6 tells of pages");
});

test("on an engine ReAct computes each token once, and the other agent its catalogs and memories on top", async () => {
  const folder = await ensureTinyModel(directory, { context: 16_384 });
  const server = await InProcessServer.open({ folder, tokens: 40_000, kv: "f32" });
  try {
    const source = { name: "short", text: await record(script, workspace, 600) };
    const react = await play(server, source, { name: "react", harness: "react", reuse: "suffix" });
    const pca = await play(server, source, { name: "pca", harness: "pca", reuse: "suffix" });
    for (const { costs } of [react, pca])
      for (const { input, kept, relocated, computed } of costs)
        expect(kept + relocated + computed).toBe(input);
    expect(react.computed).toBe(react["prefix only"]);
    // What was appended, and for each turn the last token or the mark of an answer that begins.
    expect(react.computed - react["peak input"]).toBeLessThan(20 * react.turns);
    expect(react).toMatchObject({ compactions: 0, catalog: 0, "of it compressor": 0 });
    expect(pca.compactions).toBeGreaterThanOrEqual(2);
    expect(pca.catalog).toBeGreaterThan(0);
    expect(pca.computed).toBeGreaterThan(react.computed);
    expect(pca.computed).toBeLessThan(pca["prefix only"]);
    expect(pca["peak input"]).toBeLessThan(2 * react["peak input"]);
    expect(pca.turns).toBe(8 + pca.compactions);
  } finally {
    await server.close();
  }
}, 60_000);

test("the three scripts of this repository are long", () => {
  const all = scripts(packageRoot(), 48, 600);
  expect(all.map(({ name }) => name)).toEqual(["bug-hunt", "native-review", "research"]);
  for (const { moves } of all) expect(moves.length).toBeGreaterThanOrEqual(40);
});
