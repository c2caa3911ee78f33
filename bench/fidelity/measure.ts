// Every arm on one conversation: built, scored along what the oracle says in each turn, asked for the needles,
// released. The oracle is the first arm; its distributions stay while the others are compared with them.
import type { SequenceId } from "../../src/engine/addon.ts";
import { lengthOf, tokensOf } from "../../src/text/span.ts";
import type { Arm } from "./arms.ts";
import { type Bases, digestOf } from "./bases.ts";
import { look, type Reading } from "./cells.ts";
import type { NeedleKind, Shape } from "./conversation.ts";
import { ask, type Scene, setScene } from "./scene.ts";
import { type Row, scored, scoreTurn, type TurnScore } from "./score.ts";
import type { NeedleScore } from "./statistics.ts";
import type { ModelText } from "./text.ts";

/** One arm on one conversation; plain, so that it can be kept as JSON. */
export interface Measured extends ArmScores {
  readonly seed: number;
  /** Names the compacted conversation and what is asked: lines of one seed with another name are not comparable. */
  readonly scene: string;
  readonly tokens: {
    readonly total: number;
    readonly kept: number;
    readonly removed: number;
    readonly memory: number;
    readonly survivors: number;
    /** Of the survivors. */
    readonly assistant: number;
  };
  readonly memory: Scene["memory"];
}

interface ArmScores {
  readonly arm: string;
  /** Tokens run through the model for the compaction. */
  readonly computed: number;
  readonly turns: Readonly<Record<string, TurnScore>>;
  /** What the oracle answered; in its own line only. */
  readonly said?: Readonly<Record<string, string>>;
  readonly needles: readonly (NeedleScore & { readonly kind: NeedleKind })[];
}

/** Passes over the arms that `done` has already. */
export async function* measure(
  bases: Bases,
  text: ModelText,
  shape: Shape,
  arms: readonly Arm[],
  done: (scene: string, arm: string) => boolean = () => false,
): AsyncGenerator<Measured, void, undefined> {
  const scene = await setScene(bases, text, shape);
  try {
    const own = nameOf(scene);
    const left = arms.filter(({ name }) => !done(own, name));
    if (left.length === 0) return;
    // The oracle speaks, also where its own line is there already.
    const chosen = left[0] === arms[0] ? left : [arms[0]!, ...left];
    const conversation = { seed: shape.seed, scene: own, memory: scene.memory, tokens: tokensOfScene(scene) };
    for await (const scores of measureScene(bases, text, scene, chosen)) {
      if (!done(own, scores.arm)) yield { ...conversation, ...scores };
    }
  } finally {
    bases.runner.release(scene.edit.resident.id);
  }
}

async function* measureScene(
  bases: Bases,
  text: ModelText,
  scene: Scene,
  arms: readonly Arm[],
): AsyncGenerator<ArmScores, void, undefined> {
  const { runner } = bases;
  let spoken: Spoken | undefined;
  for (const { name, build } of arms) {
    const begin = performance.now();
    const { resident, computed } = await build(scene.edit);
    const built = performance.now();
    spoken ??= await speakAll(bases, text, scene, resident.id);
    const { readings, rows } = spoken;
    const seen = await look(runner, resident.id, readings, (row, turn, place) =>
      scored(rows[turn]![place]!, row),
    );
    const needles = await ask(runner, resident.id, scene.needles);
    runner.release(resident.id);
    const turns = scene.turns.map((turn, place): [string, TurnScore] => [
      turn.name,
      scoreTurn(rows[place]!, seen[place]!, readings[place]!.text),
    ]);
    yield {
      arm: name,
      computed,
      turns: Object.fromEntries(turns),
      ...(name === arms[0]!.name && { said: saidIn(text, scene, readings) }),
      needles: needles.map((score, place) => ({ ...score, kind: scene.needles[place]!.needle.kind })),
    };
    const [building, all] = [built - begin, performance.now() - begin].map((ms) => (ms / 1000).toFixed(1));
    process.stderr.write(`${name}: ${computed} tokens in ${building} s, with scores ${all} s\n`);
  }
}

interface Spoken {
  readonly readings: readonly Reading[];
  readonly rows: readonly (readonly Row[])[];
}

async function speakAll(bases: Bases, text: ModelText, scene: Scene, id: SequenceId): Promise<Spoken> {
  const answers = await bases.speak(id, scene.turns, text.stopTokens);
  const readings = scene.turns.map(({ prompt }, place): Reading => ({ prompt, text: answers[place]! }));
  return { readings, rows: await look(bases.runner, id, readings, (row) => row) };
}

function saidIn(text: ModelText, { turns }: Scene, readings: readonly Reading[]) {
  return Object.fromEntries(
    turns.map(({ name }, place) => [name, text.tokenizer.decode(readings[place]!.text)]),
  );
}

function nameOf({ edit, turns }: Scene): string {
  return digestOf("", [
    tokensOf(edit.resident.spans),
    tokensOf(edit.wanted),
    ...turns.map(({ prompt }) => prompt),
  ]);
}

function tokensOfScene({ edit }: Scene): Measured["tokens"] {
  const { wanted, resident, keptSpans, memorySpans } = edit;
  const kept = lengthOf(wanted.slice(0, keptSpans));
  const memory = lengthOf(wanted.slice(keptSpans, keptSpans + memorySpans));
  const behind = wanted.slice(keptSpans + memorySpans);
  const total = lengthOf(resident.spans);
  const survivors = lengthOf(behind);
  const assistant = lengthOf(behind.filter(({ role }) => role === "assistant"));
  return { total, kept, removed: total - kept - survivors, memory, survivors, assistant };
}
