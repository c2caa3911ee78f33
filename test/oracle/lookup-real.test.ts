// Prompt lookup on a real model: text that repeats what stands in front of it, greedy and drawn by a seed. Activations
// in f32, where the rows of a step move the last bits of a logit only; with int8 ones they move more (docs/performance/kernels.md).
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readManifest } from "../../models/manifest.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { openRunner } from "../../src/engine/addon.ts";
import { Engine } from "../../src/engine/engine.ts";
import { type Generated, greedy, type Job } from "../../src/engine/job.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { append, job } from "../engine/rig.ts";
import { realModel, titleOf } from "../support/real-models.ts";

const model = realModel("smollm2-135m", "f32");

describe.skipIf(model.missing)(titleOf(model), () => {
  let engine: Engine;
  let tokenizer: Tokenizer;
  beforeAll(async () => {
    const root = packageRoot();
    const { shapes, rope, graphs } = readManifest(model.folder);
    const runner = await openRunner(
      {
        model: { ...shapes, graph: join(model.folder, graphs.f32), ropeBase: rope.base },
        runtime: runtimeLibrary(root),
        device: "cpu",
        pages: 128,
        pageSize: 16,
        kvType: "f32",
        threads: 2,
      },
      root,
    );
    engine = new Engine(runner, { stepTokens: 512 });
    const read = (name: string) => JSON.parse(readFileSync(join(model.folder, name), "utf8")) as unknown;
    tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json") as object);
  });
  afterAll(() => engine?.close());

  const listing = "const total = add(first, second);\nconst rest = subtract(total, first);\n";
  const copy = `${listing}\nThe same again:\n\n${listing}\nThe same again:\n\nconst total =`;
  const free = "The keeper of the lighthouse had never baked bread before, and so";
  const drawn = { ...greedy, temperature: 0.7, topK: 20, topP: 0.8, repetitionPenalty: 1.05, seed: 11 };

  it.each([
    ["a copy, greedy", copy, greedy, true],
    ["a copy, drawn", copy, { ...drawn, temperature: 0.3 }, true],
    ["free text, greedy", free, greedy, false],
    ["free text, drawn", free, drawn, false],
  ] as const)(
    "%s: the same tokens with lookup and without",
    async (_, text, sampling, repeats) => {
      const prompt = Array.from(tokenizer.encodeTemplate(text));
      const run = async (more: Partial<Job>) => {
        const sequence = engine.create();
        const items: Generated[] = [];
        for await (const item of sequence.run(job([append(sequence, prompt)], 24, { sampling, ...more })))
          items.push(item);
        sequence.release();
        return items;
      };
      const plain = await run({});
      const quick = await run({ lookup: true });
      expect(quick.map(({ token }) => token)).toEqual(plain.map(({ token }) => token));
      if (repeats) expect(quick.filter(({ drafted }) => drafted).length).toBeGreaterThan(0);
    },
    240_000,
  );
});
