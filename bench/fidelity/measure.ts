// Every arm on one conversation: built, scored along what the oracle says in each turn, asked for the needles,
// released. The oracle is the first arm.
import type { Runner } from "../../src/engine/addon.ts";
import { lengthOf } from "../../src/text/span.ts";
import type { Arm } from "./arms.ts";
import { look, type Reading, speak } from "./cells.ts";
import type { NeedleKind, Shape } from "./conversation.ts";
import { ask, type Scene, setScene } from "./scene.ts";
import { scoreTurn, type TurnScore } from "./score.ts";
import type { NeedleScore, Seen } from "./statistics.ts";
import type { ModelText } from "./text.ts";

/** One arm on one conversation; plain, so that it can be kept as JSON. */
export interface Measured extends ArmScores {
  readonly seed: number;
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
  readonly needles: readonly (NeedleScore & { readonly kind: NeedleKind })[];
}

export async function* measure(
  runner: Runner,
  text: ModelText,
  shape: Shape,
  arms: readonly Arm[],
): AsyncGenerator<Measured, void, undefined> {
  const scene = await setScene(runner, text, shape);
  const conversation = { seed: shape.seed, memory: scene.memory, tokens: tokensOfScene(scene) };
  let spoken: { readonly readings: readonly Reading[]; readonly seen: readonly Seen[][] } | undefined;
  for (const { name, build } of arms) {
    const begin = performance.now();
    const { resident, computed } = await build(scene.edit);
    const built = performance.now();
    spoken ??= await speakAll(runner, text, scene, resident.id);
    const seen = await look(runner, resident.id, spoken.readings);
    const needles = await ask(runner, resident.id, scene.needles);
    runner.release(resident.id);
    const turns = scene.turns.map((turn, place): [string, TurnScore] => [
      turn.name,
      scoreTurn(spoken!.seen[place]!, seen[place]!, spoken!.readings[place]!.text),
    ]);
    yield {
      ...conversation,
      arm: name,
      computed,
      turns: Object.fromEntries(turns),
      needles: needles.map((score, place) => ({ ...score, kind: scene.needles[place]!.needle.kind })),
    };
    const [building, all] = [built - begin, performance.now() - begin].map((ms) => (ms / 1000).toFixed(1));
    process.stderr.write(
      `conversation ${shape.seed}, ${name}: ${computed} tokens in ${building} s, with scores ${all} s\n`,
    );
  }
  runner.release(scene.edit.resident.id);
}

async function speakAll(runner: Runner, text: ModelText, scene: Scene, id: number) {
  const answers = await speak(runner, id, scene.turns, text.stopTokens);
  const readings = scene.turns.map(({ prompt }, place): Reading => ({ prompt, text: answers[place]! }));
  return { readings, seen: await look(runner, id, readings) };
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
