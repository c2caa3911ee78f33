// The fidelity benchmark on the tiny model, whole: its arms must be where arithmetic says they are. That the numbers
// of a trained model are what README.md says is the benchmark's own business.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Arm, arms } from "../../bench/fidelity/arms.ts";
import { chain } from "../../bench/fidelity/chain.ts";
import type { Shape } from "../../bench/fidelity/conversation.ts";
import { converse } from "../../bench/fidelity/conversation.ts";
import { readCorpus } from "../../bench/fidelity/corpus.ts";
import { type Measured, measure } from "../../bench/fidelity/measure.ts";
import { PrefillCache } from "../../bench/fidelity/prefill-cache.ts";
import { prepareConversation } from "../../bench/fidelity/prepared-conversation.ts";
import { mean } from "../../bench/fidelity/statistics.ts";
import { ModelText } from "../../bench/fidelity/text.ts";
import { openBenchRunner } from "../../bench/support/open-model.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import type { Runner } from "../../src/engine/addon.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";

let runner: Runner;
let text: ModelText;
let shape: Shape;
const scores: Measured[] = [];
const wanted = ["none", "again", "forget", "idle", "suffix", "suffix repair=assistant", "unturned"];
const chosen = arms.filter(({ name }) => wanted.includes(name));

beforeAll(async () => {
  // Its tokens are bytes, or nearly, so a conversation of a few short messages takes thousands.
  const folder = await ensureTinyModel(`${packageRoot()}/build/tiny/fidelity`, { context: 8192 });
  ({ runner } = await openBenchRunner(folder, { tokens: 24_576, kvType: "f32", activations: "f32" }));
  text = new ModelText(folder);
  shape = {
    seed: 1,
    exchanges: 4,
    removed: { start: 1, end: 2 },
    resultTokens: { least: 5, most: 10 },
    needlesPerKind: 1,
    texts: readCorpus(),
    countOf: (some) => text.countOf(some),
  };
  for await (const one of measured(new PrefillCache(runner, "", undefined), chosen)) scores.push(one);
});
afterAll(() => runner?.close());

async function* measured(prefills: PrefillCache, some: readonly Arm[], done?: (arm: string) => boolean) {
  const scene = await prepareConversation(prefills, text, shape);
  try {
    yield* measure(prefills, text, scene, some, done);
  } finally {
    runner.release(scene.resident);
  }
}

const kl = (arm: string) => {
  const { turns } = scores.find((one) => one.arm === arm)!;
  return mean(Object.values(turns).flatMap(({ divergences }) => divergences));
};

test("the oracle diverges from itself by nothing, and computing it twice by next to nothing", () => {
  expect(kl("none")).toBeLessThan(1e-9);
  expect(Math.abs(kl("again"))).toBeLessThan(1e-6);
});

test("forget and idle repair end where a cold prefill does", () => {
  expect(Math.abs(kl("forget"))).toBeLessThan(1e-6);
  expect(Math.abs(kl("idle"))).toBeLessThan(1e-6);
});

test("keys that are not rotated diverge far more than stale ones", () => {
  expect(kl("suffix")).toBeGreaterThan(10 * Math.abs(kl("again")));
  expect(kl("unturned")).toBeGreaterThan(3 * kl("suffix"));
});

test("suffix reuse computes the memory alone, repair the assistant messages besides", () => {
  const computed = (arm: string) => scores.find((one) => one.arm === arm)!.computed;
  const { total, kept, removed, memory, survivors, assistant } = scores[0]!.tokens;
  expect(kept + removed + survivors).toBe(total);
  expect(computed("none")).toBe(kept + memory + survivors);
  // The memory begins as the message it replaces does.
  expect(memory - computed("suffix")).toBeLessThan(8);
  expect(computed("suffix repair=assistant")).toBe(computed("suffix") + assistant);
  expect(computed("forget")).toBe(computed("suffix") + survivors);
});

test("an interrupted run continues where it stopped, with the same numbers and without a prefill", async () => {
  const folder = mkdtempSync(join(tmpdir(), "pocket-fidelity-"));
  try {
    const prefills = () => new PrefillCache(runner, "tiny", folder);
    const two = chosen.slice(0, 2);
    const first: Measured[] = [];
    for await (const one of measured(prefills(), two)) {
      first.push(one);
      break;
    }
    const done = (arm: string) => first.some((one) => one.arm === arm);
    const goOn = async (from: PrefillCache) => {
      const before = runner.stats().tokensComputed;
      const rest: Measured[] = [];
      for await (const one of measured(from, two, done)) rest.push(one);
      return { rest, computed: runner.stats().tokensComputed - before };
    };
    const kept = await goOn(prefills());
    expect([...first, ...kept.rest].map(({ arm }) => arm)).toEqual(two.map(({ name }) => name));
    expect(kept.rest).toEqual(scores.filter(({ arm }) => arm === two[1]!.name));
    // Both prefills, and the answers besides.
    const anew = await goOn(new PrefillCache(runner, "tiny", undefined));
    expect(anew.rest).toEqual(kept.rest);
    expect(anew.computed - kept.computed).toBeGreaterThan(scores[0]!.tokens.total + scores[0]!.computed);
    for await (const one of measured(prefills(), two, () => true)) expect(one).toBeUndefined();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("no page is lost, whatever the arms did", () => {
  runner.check();
  expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
});

test("a conversation is the same for the same seed, and its needles stand where they should", () => {
  const [one, again, other] = [shape, shape, { ...shape, seed: 2 }].map(converse);
  expect(again).toEqual(one);
  expect(other).not.toEqual(one);
  for (const [place, { needles, result }] of one!.exchanges.entries()) {
    for (const { kind, port, decoys } of needles) {
      expect(kind === "survivor").toBe(place >= shape.removed.end);
      expect(result.content).toContain(port);
      expect(decoys).not.toContain(port);
    }
  }
  expect(one!.exchanges.flatMap(({ needles }) => needles)).toHaveLength(3);
});

test("a chain measures every arm in a round and loses no page", async () => {
  const links = [];
  for await (const link of chain(runner, text, 1, 3)) links.push(link);
  expect(links.map(({ round, arm }) => `${round} ${arm}`)).toEqual([
    "1 suffix repair=none",
    "1 suffix repair=assistant",
  ]);
  expect(links[1]!.stale).toBeLessThan(links[0]!.stale);
  expect(runner.stats().pagesUsed).toBe(0);
}, 60_000);
