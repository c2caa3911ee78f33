// PyTorch as a second opinion: the peer's side without the peer, by a script in the interpreter's place; and the real
// driver on SmolLM2, where the environment of scripts/peers transformers and the model's GGUF file are there.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { mean } from "../../bench/fidelity/statistics.ts";
import { transformersPython } from "../../bench/peers/peers-folder.ts";
import { type PeerRecipe, TransformersPeer } from "../../bench/peers/transformers.ts";
import { readManifest } from "../../models/manifest.ts";
import type { Splice } from "../../src/engine/job.ts";
import { seeded } from "../support/random.ts";
import { realModel } from "../support/real-models.ts";
import { PeersFolder } from "./peers-folder.ts";

// Says what it was asked in places of the answer; 13 is a place it does not look at, 14 a number that is none, 15 a
// token that it does not compute.
const script = `#!${process.execPath}
const { createInterface } = require("node:readline");
const [driver, ...words] = process.argv.slice(2);
const say = (answer) => console.log(JSON.stringify(answer));
say({ ready: [driver.split("/").pop(), ...words].join(" "), vocab: 100 });
let readings = [];
createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  const inserted = asked.tokens ?? asked.edits.flat().flatMap(({ tokens }) => tokens);
  if (inserted.includes(99)) { console.error("out of memory"); process.exit(1); }
  readings = asked.readings ?? readings;
  const computed = inserted.filter((id) => id !== 15).length;
  const seen = readings.map(({ text }) => ({
    likeliest: text.filter((id) => !inserted.includes(13) || id !== text[0]),
    logprobs: text.map(() => (inserted.includes(14) ? null : -1)),
    divergences: text.map(() => (asked.turned === false ? 2 : asked.ours === undefined ? 0 : 1)),
  }));
  say({ computed, seen });
});
`;

const options = { gguf: "/weights/w.gguf", sha256: "ab12", threads: 2, vocab: 100, keep: undefined };
const reading = { prompt: Int32Array.of(1, 2), text: Int32Array.of(3, 4, 5) };
const inserting = (...tokens: number[]): PeerRecipe => ({
  from: "resident",
  keep: 2,
  edits: [[{ start: 1, end: 2, tokens: Int32Array.from(tokens) }]],
  chunk: 512,
  turned: true,
});

describe("transformers as a second opinion", () => {
  let folder: PeersFolder;
  let peer: TransformersPeer | undefined;
  beforeEach(() => {
    folder = new PeersFolder();
    folder.place("transformers/venv/bin/python", script);
  });
  afterEach(async () => {
    await peer?.stop();
    peer = undefined;
    folder.remove();
  });

  test("is started with the weights, what is in them, its threads and where it keeps prefills", async () => {
    peer = await TransformersPeer.start({ ...options, keep: "/bases" });
    expect(peer.engine).toBe("driver.py /weights/w.gguf ab12 2 /bases");
  });

  test("is told of splices and control, and of a file whose distributions its oracle is compared with", async () => {
    peer = await TransformersPeer.start(options);
    await peer.hold(Int32Array.of(7, 8));
    const [alone] = await peer.oracle(Int32Array.of(7), [reading]);
    expect(alone).toEqual({ likeliest: [3, 4, 5], logprobs: [-1, -1, -1], divergences: [0, 0, 0] });
    const [oracle] = await peer.oracle(Int32Array.of(7), [reading], "/rows");
    expect(oracle!.divergences).toEqual([1, 1, 1]);
    const [unturned] = await peer.arm({ ...inserting(6), turned: false });
    expect(unturned!.divergences).toEqual([2, 2, 2]);
  });

  test("that computed other tokens, left out a place or has a number that is none is not believed", async () => {
    peer = await TransformersPeer.start(options);
    await peer.oracle(Int32Array.of(7), [reading]);
    await expect(peer.arm(inserting(15, 6))).rejects.toThrow("computed 1 tokens and not 2");
    await expect(peer.arm(inserting(13))).rejects.toThrow("every index");
    await expect(peer.arm(inserting(14))).rejects.toThrow("every index");
    await expect(peer.arm(inserting(99))).rejects.toThrow("out of memory");
  });

  test("that reads another vocabulary, or is not installed, says so", async () => {
    await expect(TransformersPeer.start({ ...options, vocab: 101 })).rejects.toThrow("100 tokens");
    rmSync(join(folder.path, "transformers"), { recursive: true });
    await expect(TransformersPeer.start(options)).rejects.toThrow("scripts/peers transformers");
  });
});

const model = realModel("smollm2-135m");
const why = whyNot();

describe.skipIf(why)(`transformers on ${model.id}${why ? ` (skipped: ${why})` : ""}`, () => {
  const random = seeded(5);
  const some = (count: number) =>
    Int32Array.from({ length: count }, () => 1000 + Math.floor(random() * 9000));
  const resident = some(160);
  const memory = some(12);
  const [start, end] = [40, 90];
  const wanted = Int32Array.of(...resident.slice(0, start), ...memory, ...resident.slice(end));
  const readings = [{ prompt: some(9), text: some(20) }];
  const spliced = (...splices: Splice[]) => ({ ...inserting(), keep: resident.length, edits: [splices] });
  const kl = async (recipe: PeerRecipe) => mean((await peer.arm(recipe))[0]!.divergences);
  let peer: TransformersPeer;

  beforeAll(async () => {
    const { source, shapes } = readManifest(model.folder);
    peer = await TransformersPeer.start({ ...options, ...source, vocab: shapes.vocab, gguf: ggufOf() });
    await peer.hold(resident);
    await peer.oracle(wanted, readings);
  }, 120_000);
  afterAll(() => peer?.stop());

  test("computing all behind a memory anew is the oracle, keeping survivors is not, not to turn them is worse", async () => {
    const anew = Int32Array.of(...memory, ...resident.slice(end));
    const suffix = spliced({ start, end, tokens: memory });
    const stale = await kl(suffix);
    expect(await kl(spliced({ start, end: resident.length, tokens: anew }))).toBeLessThan(1e-9);
    expect(stale).toBeGreaterThan(1e-4);
    expect(await kl({ ...suffix, turned: false })).toBeGreaterThan(3 * stale);
  });

  test("survivors pushed back and pulled again, or repaired front to back, are the oracle", async () => {
    const pushed = { start: 50, end: 50, tokens: memory };
    const pulled = { start: 50, end: 62, tokens: new Int32Array() };
    const moved: PeerRecipe = {
      ...inserting(),
      from: "oracle",
      keep: wanted.length,
      edits: [[pushed], [pulled]],
    };
    expect(await kl(moved)).toBeLessThan(1e-8);
    const suffix = spliced({ start, end, tokens: memory });
    const behind = start + memory.length;
    const repaired = { start: behind, end: wanted.length, tokens: wanted.slice(behind) };
    expect(await kl({ ...suffix, edits: [...suffix.edits, [repaired]] })).toBeLessThan(1e-8);
  });

  test("a splice that is out of order is refused, and the next one is answered", async () => {
    const tokens = Int32Array.of(1);
    await expect(
      peer.arm(spliced({ start: 9, end: 12, tokens }, { start: 11, end: 13, tokens })),
    ).rejects.toThrow("splice [11, 13)");
    expect(await kl(spliced({ start, end, tokens: memory }))).toBeGreaterThan(1e-4);
  });

  test("distributions in a file are compared row by row with its oracle's", async () => {
    const { vocab } = readManifest(model.folder).shapes;
    const folder = mkdtempSync(join(tmpdir(), "pocket-rows-"));
    try {
      // Every token as likely as every other: the divergence is what the oracle knows, log(vocab) less its entropy.
      const rows = new Float32Array(readings[0]!.text.length * vocab).fill(-Math.log(vocab));
      writeFileSync(join(folder, "rows"), rows);
      const [seen] = await peer.oracle(wanted, readings, join(folder, "rows"));
      expect(Math.min(...seen!.divergences)).toBeGreaterThan(0);
      expect(Math.max(...seen!.divergences)).toBeLessThan(Math.log(vocab));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

/** In the downloads, as `pocket pull` leaves it. */
function ggufOf(): string {
  return join(model.folder, "../downloads", readManifest(model.folder).source.file);
}

function whyNot(): string | undefined {
  if (model.missing !== undefined) return model.missing;
  if (!existsSync(ggufOf())) return `there is no ${ggufOf()}`;
  try {
    transformersPython();
    return undefined;
  } catch (cause) {
    return (cause as Error).message;
  }
}
