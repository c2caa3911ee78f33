// The native runner on the seeded tiny model: f32 weights, pages and activations, so that two results differ by the
// order of summation only. One model folder per name, since test files run at the same time.
import { join } from "node:path";
import { readManifest } from "../../models/manifest.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { type OpenOptions, openRunner, type Runner, type SequenceId } from "../../src/engine/addon.ts";
import { greedy as greedyJob } from "../../src/engine/job.ts";
import { ensureTinyModel, type TinyOptions } from "./tiny-model.ts";

export const greedy = { ...greedyJob, draw: 0, generatedFrom: 0, top: 0 };

/** Token ids in which no two ranges are equal. */
export const tokensOf = (length: number, salt = 0): Int32Array =>
  Int32Array.from({ length }, (_, index) => (index * 37 + salt * 101 + (index >> 3) * 11) % 250);

/** `digestOf` replaces the model's digest, or removes it. */
export async function openTiny(
  name: string,
  options: Partial<OpenOptions> = {},
  digestOf: (digest: string) => string | undefined = (digest) => digest,
): Promise<Runner> {
  const root = packageRoot();
  const folder = await ensureTinyModel(join(root, "build", "tiny", name));
  const { shapes, rope, graphs, ...manifest } = readManifest(folder);
  const digest = digestOf(manifest.digest);
  return openRunner(
    {
      model: { ...shapes, graph: join(folder, graphs.f32), ropeBase: rope.base, ...(digest && { digest }) },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: 128,
      pageSize: 16,
      kvType: "f32",
      threads: 2,
      ...options,
    },
    root,
  );
}

/** With block-quantised weights and 8-bit activations: the graph that real models run. */
export async function openTinyPanels(name: string, options: Partial<OpenOptions> = {}): Promise<Runner> {
  const root = packageRoot();
  const made: Partial<TinyOptions> = { source: "mixed", weights: "exact" };
  const folder = await ensureTinyModel(join(root, "build", "tiny", name), made);
  const { shapes, rope, graphs } = readManifest(folder);
  const model = { ...shapes, graph: join(folder, graphs.int8), ropeBase: rope.base };
  return openTiny(name, { model, ...options });
}

/** Applies one edit and computes its tokens in chunks of `chunk`. */
export async function edit(
  runner: Runner,
  id: SequenceId,
  splices: readonly { start: number; end: number; tokens: Int32Array }[],
  chunk = 1024,
): Promise<void> {
  runner.splice(
    id,
    splices.map(({ start, end, tokens }) => ({ start, end, count: tokens.length })),
  );
  const tokens = Int32Array.from(splices.flatMap((splice) => Array.from(splice.tokens)));
  for (let at = 0; at < tokens.length; at += chunk) {
    await runner.step([{ sequence: id, tokens: tokens.subarray(at, at + chunk) }]);
  }
}

export async function prefill(runner: Runner, tokens: Int32Array, chunk = 1024): Promise<SequenceId> {
  const id = runner.newSequence();
  await edit(runner, id, [{ start: 0, end: 0, tokens }], chunk);
  return id;
}

/** Logprobs of the 100 most probable tokens after `token`, by id; the appended cell is cut again. */
export async function nextLogprobs(runner: Runner, id: SequenceId, token = 7): Promise<Map<number, number>> {
  const { length } = runner.sequence(id);
  runner.splice(id, [{ start: length, end: length, count: 1 }]);
  const { outcomes } = await runner.step([
    { sequence: id, tokens: Int32Array.of(token), sample: { ...greedy, generatedFrom: length, top: 100 } },
  ]);
  runner.splice(id, [{ start: length, end: length + 1, count: 0 }]);
  const { topTokens, topLogprobs } = outcomes[0]!;
  return new Map(Array.from(topTokens, (candidate, rank) => [candidate, topLogprobs[rank]!]));
}

/** Largest difference of logprobs; Infinity if a token is only in `a`. */
export function distance(a: ReadonlyMap<number, number>, b: ReadonlyMap<number, number>): number {
  let max = 0;
  for (const [token, logprob] of a)
    max = Math.max(max, Math.abs(logprob - (b.get(token) ?? Number.NEGATIVE_INFINITY)));
  return max;
}
