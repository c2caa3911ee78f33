// Real weights against a reference that is not ours (test/golden, made by scripts/golden.py in float32): KL of
// the reference to us over its 20 likeliest tokens and the rest, at the last positions of every prompt.
// Needs the imported models (scripts/test fetches SmolLM2); what is not there is skipped with its reason.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readManifest } from "../../models/manifest.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { type KvType, openRunner, type Runner } from "../../src/engine/addon.ts";
import { type RealModel, realModel, titleOf } from "../support/real-models.ts";

interface GoldenPrompt {
  readonly name: string;
  readonly tokens: readonly number[];
  readonly positions: readonly number[];
  readonly logsumexp: readonly number[];
  readonly rest: readonly number[];
  readonly top: readonly { readonly ids: readonly number[]; readonly logits: readonly number[] }[];
}

interface Scores {
  /** Mean over all positions of all prompts. */
  readonly kl: number;
  /** Share of positions whose likeliest token is the reference's. */
  readonly agreement: number;
}

async function scores(
  { id, folder }: RealModel,
  activations: "int8" | "f32",
  kvType: KvType,
  longest: number,
): Promise<Scores> {
  const root = packageRoot();
  const { shapes, rope, graphs } = readManifest(folder);
  const runner = await openRunner(
    {
      model: { ...shapes, graph: join(folder, graphs[activations]), ropeBase: rope.base },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: 192,
      pageSize: 16,
      kvType,
      threads: 2,
    },
    root,
  );
  const golden = JSON.parse(readFileSync(join(root, "test", "golden", `${id}.json`), "utf8")) as {
    prompts: GoldenPrompt[];
  };
  const divergences: number[] = [];
  let agreed = 0;
  for (const prompt of golden.prompts.filter(({ tokens }) => tokens.length <= longest)) {
    for (const [place, ours] of (await distributions(runner, prompt)).entries()) {
      const { ids } = prompt.top[place]!;
      divergences.push(divergence(prompt, place, ours));
      if (ids.every((token) => (ours.get(token) ?? Number.NEGATIVE_INFINITY) <= ours.get(ids[0]!)!)) agreed++;
    }
  }
  await runner.close();
  const kl = divergences.reduce((sum, one) => sum + one, 0) / divergences.length;
  return { kl, agreement: agreed / divergences.length };
}

/** Our logprobs of the reference's tokens, by id, for each scored position. */
async function distributions(
  runner: Runner,
  { tokens, positions, top }: GoldenPrompt,
): Promise<Map<number, number>[]> {
  const id = runner.newSequence();
  runner.splice(id, [{ start: 0, end: 0, count: tokens.length }]);
  const first = positions[0]!;
  for (let at = 0; at < first; at += 512) {
    await runner.step([
      { sequence: id, tokens: Int32Array.from(tokens.slice(at, Math.min(at + 512, first))) },
    ]);
  }
  const rest = Int32Array.from(tokens.slice(first));
  const { outcomes } = await runner.step([
    { sequence: id, tokens: rest, targets: new Int32Array(rest.length), targetTop: 100 },
  ]);
  runner.release(id);
  const { targetTopTokens, targetTopLogprobs } = outcomes[0]!;
  return top.map(({ ids }, place) => {
    const ours = new Map<number, number>();
    for (let rank = place * 100; rank < (place + 1) * 100; rank++) {
      if (ids.includes(targetTopTokens[rank]!)) ours.set(targetTopTokens[rank]!, targetTopLogprobs[rank]!);
    }
    return ours;
  });
}

/** KL(reference ‖ ours) over 21 outcomes, both normalised, as test/golden/README.md has it. */
function divergence(
  { top, logsumexp, rest }: GoldenPrompt,
  place: number,
  ours: ReadonlyMap<number, number>,
): number {
  const { ids, logits } = top[place]!;
  // A token of theirs outside our hundred counts as e^-30: a wrong model is far off, not undefined.
  const p = [...logits.map((logit) => Math.exp(logit - logsumexp[place]!)), rest[place]!];
  const q = ids.map((token) => Math.exp(ours.get(token) ?? -30));
  q.push(Math.max(1 - q.reduce((sum, one) => sum + one, 0), 1e-12));
  const [sumP, sumQ] = [p, q].map((values) => values.reduce((sum, one) => sum + one, 0)) as [number, number];
  return p.reduce(
    (sum, one, outcome) => (one > 0 ? sum + (one / sumP) * Math.log(one / sumP / (q[outcome]! / sumQ)) : sum),
    0,
  );
}

// SmolLM2's file is Q4_1, whose real-valued offsets 8-bit containers round: its values whole are in `f32`.
for (const { id, format } of [
  { id: "smollm2-135m", format: "f32" },
  { id: "qwen2.5-coder-0.5b", format: "exact" },
] as const) {
  const model = realModel(id, format);
  describe.skipIf(model.missing)(titleOf(model), () => {
    // The long prompt takes half a minute on this path, which unpacks packed weights at every step.
    test.each(["f32", "f16"] as const)(
      "with f32 activations and %s pages the mean KL to the reference is under 1e-4",
      { timeout: 200_000 },
      async (kvType) => {
        const measured = await scores(model, "f32", kvType, 300);
        expect(measured.kl).toBeLessThan(1e-4);
        expect(measured.agreement).toBeGreaterThan(0.98);
      },
    );
  });
}

// Of SmolLM2's 161 positions five to seven have two tokens so near each other that 8-bit activations decide.
for (const { id, kl, agreement } of [
  { id: "smollm2-135m", kl: 0.004, agreement: 0.95 },
  { id: "qwen2.5-coder-0.5b", kl: 0.0006, agreement: 0.98 },
]) {
  const model = realModel(id);
  describe.skipIf(model.missing)(titleOf(model), () => {
    test(`on the default path the mean KL is under ${kl} and the top token agrees`, {
      timeout: 200_000,
    }, async () => {
      const measured = await scores(model, "int8", "f16", 4096);
      expect(measured.kl).toBeLessThan(kl);
      expect(measured.agreement).toBeGreaterThan(agreement);
    });
  });
}
