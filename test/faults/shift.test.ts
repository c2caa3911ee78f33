// Position shifts in models, sessions and settings: rotary schemes that cannot be shifted are refused at import, and
// the others survive a rewind. native.test.ts has the shifts of the native side.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { importGguf } from "../../models/import.ts";
import { settings } from "../../src/config/settings.ts";
import { type TinyOptions, tinyGguf } from "../support/tiny-model.ts";
import { assistant, openTinyStack, turns, user } from "../support/tiny-stack.ts";
import { allPairs } from "./pairwise.ts";

/** Rejects as the import of such a file does. */
async function importing(metadata: TinyOptions["metadata"]): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "pocket-fault-"));
  const file = join(folder, "model.gguf");
  try {
    writeFileSync(file, tinyGguf({ metadata }));
    await importGguf({ file, id: "model", weights: "f32", into: folder });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const unsupported = { code: "UNSUPPORTED_MODEL", status: 400 };

test("a model with several rotary axes is refused at import by name", async () => {
  for (const architecture of ["qwen2vl", "qwen3vl", "qwen35"])
    await expect(importing({ "general.architecture": architecture })).rejects.toMatchObject({
      ...unsupported,
      message: expect.stringContaining(`'${architecture}'`),
    });
});

test("a model with sliding windows is refused at import with the width of the window", async () => {
  await expect(importing({ "qwen2.attention.sliding_window": 512 })).rejects.toMatchObject(unsupported);
  await expect(importing({ "general.architecture": "gemma3" })).rejects.toMatchObject(unsupported);
});

test("a model whose keys are compressed (MLA) is refused at import", async () => {
  await expect(importing({ "general.architecture": "deepseek2" })).rejects.toMatchObject(unsupported);
});

test("a model with recurrent layers is refused at import", async () => {
  for (const architecture of ["qwen3next", "mamba", "rwkv7", "jamba"])
    await expect(importing({ "general.architecture": architecture })).rejects.toMatchObject(unsupported);
});

test("every pair of setting values starts, edits and answers", async () => {
  const axes: readonly (readonly [key: string, values: readonly string[]])[] = [
    ["cache.kv_type", ["f32", "f16", "bf16", "int8"]],
    ["activations", ["f32", "int8"]],
    ["cache.page_size", ["16", "64"]],
    ["step_tokens", ["512", "1"]],
    ["threads", ["2", "1"]],
  ];
  const rows = allPairs(axes.map(([, values]) => values.length));
  expect(rows.length).toBeLessThan(16);
  for (const row of rows) {
    const flags = Object.fromEntries(axes.map(([key, values], place) => [key, values[row[place]!]!]));
    const stack = await openTinyStack({ flags: { "cache.tokens": "2048", ...flags } });
    await stack.ask(turns(5, "pair", 3), { session: "s", maxTokens: 2 });
    const edited = [user("Short."), ...turns(5, "pair", 3).slice(1)];
    const { cacheUsage, promptTokens } = await stack.ask(edited, { session: "s", maxTokens: 2 });
    expect([flags, cacheUsage.kept + cacheUsage.relocated + cacheUsage.computed]).toEqual([
      flags,
      promptTokens,
    ]);
    expect([flags, cacheUsage.relocated > 0]).toEqual([flags, true]);
    stack.runner.check();
    await stack.close();
  }
});

test("unsupported rotary geometries are refused one by one", async () => {
  const geometries: readonly TinyOptions["metadata"][] = [
    { "qwen2.rope.dimension_count": 8 },
    { "qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": { float: 4 } },
    { "qwen2.rope.scaling.type": "longrope", "qwen2.rope.scaling.factor": { float: 4 } },
    { "qwen2.rope.scaling.type": "dynamic", "qwen2.rope.scaling.factor": { float: 2 } },
    { "qwen2.rope.scale_linear": { float: 2 } },
    { "qwen2.attention.value_length": 32 },
  ];
  for (const metadata of geometries)
    await expect(importing(metadata), JSON.stringify(metadata)).rejects.toMatchObject(unsupported);
});

test("no setting keeps cells without rotating their keys", () => {
  const keys = settings.map(({ key, sentence }) => `${key} ${sentence}`);
  expect(keys.filter((text) => /rot|rope|shift/i.test(text))).toEqual([]);
});

for (const family of ["qwen2", "llama"] as const)
  test(`a rewind to no or some tokens, then continuing, equals a cold start (${family})`, async () => {
    const stack = await openTinyStack({ model: { family, id: `rewind-${family}` } });
    const whole = turns(7, "rewind");
    await stack.ask(whole, { session: "s", reuse: "prefix" });
    for (const kept of [5, 3, 1]) {
      const back = [...whole.slice(0, kept - 1), user(`Again from ${kept}`)];
      const rewound = await stack.ask(back, { session: "s", reuse: "prefix" });
      expect(rewound.text).toBe((await stack.cold(back)).text);
      const on = [...back, assistant(rewound.text), user("And on")];
      const { text, cacheUsage } = await stack.ask(on, { session: "s", reuse: "prefix" });
      expect(cacheUsage.kept).toBeGreaterThanOrEqual(rewound.promptTokens);
      // Spoken again word for word by the cold one: the ids are remembered for the text.
      expect(text).toBe((await stack.cold(on)).text);
    }
    await stack.close();
  });
