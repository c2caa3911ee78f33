// The same arms on the same tokens in PyTorch: our planner's recipes, our oracle's words, their arithmetic. If both
// agree, splices and their positions are right, and what differs from other conversations is the conversations.
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { lengthOf, tokensOf } from "../../src/text/span.ts";
import type { Looked, PeerRecipe, TransformersPeer } from "../peers/transformers.ts";
import { type Arm, computedBy, type Edit, type Recipe } from "./arms.ts";
import { chunkTokens } from "./cells.ts";
import { answerAll, type Measured, type OracleAnswers, settingOf } from "./measure.ts";
import type { PrefillCache } from "./prefill-cache.ts";
import type { PreparedConversation } from "./prepared-conversation.ts";
import { type Scored, scoreTurn, type TurnScore } from "./score.ts";
import { mean } from "./statistics.ts";
import type { ModelText } from "./text.ts";

export interface TransformersComparison {
  readonly peer: TransformersPeer;
  /** What the oracles may differ by: see expectAlike. */
  readonly bound: number;
}

/**
 * Passes over the arms that `done` has already. Needles are not asked for. Of `none`, the divergences are
 * KL(their oracle ‖ our oracle), and what agrees is the likeliest token of both.
 */
export async function* measureTransformers(
  { peer, bound }: TransformersComparison,
  prefills: PrefillCache,
  text: ModelText,
  scene: PreparedConversation,
  arms: readonly Arm[],
  done: (arm: string) => boolean,
): AsyncGenerator<Measured, void, undefined> {
  const left = arms.filter(({ name }) => !done(name));
  if (left.length === 0) return;
  const answers = await speakHere(prefills, text, scene);
  await peer.hold(tokensOf(scene.edit.resident.spans));
  const oracle = await oracleOf(peer, scene, answers);
  expectAlike(oracle, bound);
  expectExact(await peer.arm(shiftAndShiftBack(scene.edit)));
  for (const { name, plan } of left) {
    const begin = performance.now();
    const isOracle = name === arms[0]!.name;
    const recipe = plan(scene.edit);
    const seen = isOracle ? oracle : await peer.arm(peerRecipe(recipe));
    const turns = scene.turns.map((turn, index): [string, TurnScore] => [
      turn.name,
      scoreTurn(
        answers.rows[index]!,
        scoredBy(seen[index]!),
        answers.readings[index]!.text,
        isOracle ? undefined : oracle[index]!.likeliest,
      ),
    ]);
    yield {
      ...settingOf(scene),
      arm: name,
      computed: computedBy(recipe),
      turns: Object.fromEntries(turns),
      needles: [],
    };
    const seconds = ((performance.now() - begin) / 1000).toFixed(1);
    process.stderr.write(`${name} in PyTorch: ${computedBy(recipe)} tokens, with scores ${seconds} s\n`);
  }
}

/** What the peer is asked for: the cells of a cold start, too, unless they are kept. */
export function peerRecipe({ keep, edits, chunk, noRotation }: Recipe): PeerRecipe {
  return { from: "resident", keep, edits, chunk: chunk ?? chunkTokens, turned: !noRotation };
}

/** Survivors pushed back and pulled again, the first of them computed anew: the oracle, if the peer splices rightly. */
export function shiftAndShiftBack({ wanted, keptSpans, memorySpans }: Edit): PeerRecipe {
  const tokens = tokensOf(wanted);
  const start = lengthOf(wanted.slice(0, keptSpans + memorySpans));
  const pushed = tokens.slice(0, 37);
  const anew = tokens.slice(start, start + 32);
  const edits = [
    [{ start, end: start, tokens: pushed }],
    [{ start, end: start + pushed.length + anew.length, tokens: anew }],
  ];
  return { from: "oracle", keep: tokens.length, edits, chunk: chunkTokens, turned: true };
}

/** `seen` is the peer's own oracle again; nats, a mean of a turn. */
export function expectExact(seen: readonly Looked[]): void {
  const worst = worstOf(seen);
  if (worst < 1e-6) return;
  throw new Error(
    `Survivors pushed back and pulled again diverge by ${worst} in PyTorch: the peer's splice is wrong.`,
  );
}

/** `seen` is KL(their oracle ‖ ours); arms are worth comparing only where both compute the same model. */
export function expectAlike(seen: readonly Looked[], bound: number): void {
  const worst = worstOf(seen);
  if (worst < bound) return;
  throw new Error(
    `The same prompt diverges by ${worst} between PyTorch and here, more than ${bound}: not the same model.`,
  );
}

function worstOf(seen: readonly Looked[]): number {
  return Math.max(...seen.map(({ divergences }) => mean(divergences)));
}

async function speakHere(
  prefills: PrefillCache,
  text: ModelText,
  scene: PreparedConversation,
): Promise<OracleAnswers> {
  const id = await prefills.prefill(tokensOf(scene.edit.wanted));
  const answers = await answerAll(prefills, text, scene, id);
  prefills.runner.release(id);
  return answers;
}

/** Our distributions go by way of a file: 0.6 MB a token. */
async function oracleOf(
  peer: TransformersPeer,
  { edit }: PreparedConversation,
  { readings, rows }: OracleAnswers,
) {
  const folder = mkdtempSync(join(tmpdir(), "pocket-oracle-"));
  try {
    const file = join(folder, "logprobs.f32");
    const open = openSync(file, "w");
    for (const { logprobs } of rows.flat()) writeSync(open, logprobs);
    closeSync(open);
    return await peer.oracle(tokensOf(edit.wanted), readings, file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Open is what is open here, so that both means are of the same tokens. */
function scoredBy({ likeliest, logprobs, divergences }: Looked): Scored[] {
  return likeliest.map((id, index) => ({
    likeliest: id,
    nextLogprob: logprobs[index]!,
    divergence: divergences[index]!,
  }));
}
