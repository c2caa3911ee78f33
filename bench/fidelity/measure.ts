// Every arm on one conversation: built, scored along what the oracle says in each turn, asked for the needles,
// released. The oracle is the first arm; its distributions stay while the others are compared with them.
import type { SequenceId } from "../../src/engine/addon.ts";
import { lengthOf } from "../../src/text/span.ts";
import { type Arm, computedBy, type Edit } from "./arms.ts";
import { build } from "./build.ts";
import { type Reading, readDistributions } from "./cells.ts";
import type { NeedleKind } from "./conversation.ts";
import type { PrefillCache } from "./prefill-cache.ts";
import { ask, type PreparedConversation } from "./prepared-conversation.ts";
import { type Row, scored, scoreTurn, type TurnScore } from "./score.ts";
import type { NeedleScore } from "./statistics.ts";
import type { ModelText } from "./text.ts";

/** One arm on one conversation; plain, so that it can be kept as JSON. */
export interface Measured extends Setting {
  readonly arm: string;
  /** Tokens run through the model for the compaction. */
  readonly computed: number;
  readonly turns: Readonly<Record<string, TurnScore>>;
  /** What the oracle answered; in its own line only. */
  readonly said?: Readonly<Record<string, string>>;
  readonly needles: readonly (NeedleScore & { readonly kind: NeedleKind })[];
}

/** What lines of one conversation have in common. */
interface Setting {
  readonly seed: number;
  /** As Scene.name. */
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
  readonly memory: PreparedConversation["memory"];
}

/** Passes over the arms that `done` has already. */
export async function* measure(
  prefills: PrefillCache,
  text: ModelText,
  scene: PreparedConversation,
  arms: readonly Arm[],
  done: (arm: string) => boolean = () => false,
): AsyncGenerator<Measured, void, undefined> {
  const left = arms.filter(({ name }) => !done(name));
  if (left.length === 0) return;
  const { runner } = prefills;
  let answers: OracleAnswers | undefined;
  // The oracle speaks, also where its own line is there already.
  for (const { name, plan } of left[0] === arms[0] ? left : [arms[0]!, ...left]) {
    const begin = performance.now();
    const recipe = plan(scene.edit);
    const id = await build(runner, scene.resident, recipe, (tokens) => prefills.prefill(tokens));
    const built = performance.now();
    answers ??= await answerAll(prefills, text, scene, id);
    if (done(name)) {
      runner.release(id);
      continue;
    }
    const { readings, rows } = answers;
    const seen = await readDistributions(runner, id, readings, (row, turn, index) =>
      scored(rows[turn]![index]!, row),
    );
    const needles = await ask(runner, id, scene.needles);
    runner.release(id);
    const turns = scene.turns.map((turn, index): [string, TurnScore] => [
      turn.name,
      scoreTurn(rows[index]!, seen[index]!, readings[index]!.text),
    ]);
    yield {
      ...settingOf(scene),
      arm: name,
      computed: computedBy(recipe),
      turns: Object.fromEntries(turns),
      ...(name === arms[0]!.name && { said: saidIn(text, scene, readings) }),
      needles: needles.map((score, index) => ({ ...score, kind: scene.needles[index]!.needle.kind })),
    };
    const [building, all] = [built - begin, performance.now() - begin].map((ms) => (ms / 1000).toFixed(1));
    process.stderr.write(`${name}: ${computedBy(recipe)} tokens in ${building} s, with scores ${all} s\n`);
  }
}

/** What the oracle says in each turn, and its distributions along it. */
export interface OracleAnswers {
  readonly readings: readonly Reading[];
  readonly rows: readonly (readonly Row[])[];
}

export async function answerAll(
  prefills: PrefillCache,
  text: ModelText,
  scene: PreparedConversation,
  id: SequenceId,
): Promise<OracleAnswers> {
  const answers = await prefills.speak(id, scene.turns, text.stopTokens);
  const readings = scene.turns.map(({ prompt }, index): Reading => ({ prompt, text: answers[index]! }));
  return { readings, rows: await readDistributions(prefills.runner, id, readings, (row) => row) };
}

function saidIn(text: ModelText, { turns }: PreparedConversation, readings: readonly Reading[]) {
  return Object.fromEntries(
    turns.map(({ name }, index) => [name, text.tokenizer.decode(readings[index]!.text)]),
  );
}

export function settingOf({ seed, name, memory, edit }: PreparedConversation): Setting {
  return { seed, scene: name, memory, tokens: tokensIn(edit) };
}

function tokensIn({ wanted, resident, keptSpans, memorySpans }: Edit): Setting["tokens"] {
  const kept = lengthOf(wanted.slice(0, keptSpans));
  const memory = lengthOf(wanted.slice(keptSpans, keptSpans + memorySpans));
  const behind = wanted.slice(keptSpans + memorySpans);
  const total = lengthOf(resident.spans);
  const survivors = lengthOf(behind);
  const assistant = lengthOf(behind.filter(({ role }) => role === "assistant"));
  return { total, kept, removed: total - kept - survivors, memory, survivors, assistant };
}
