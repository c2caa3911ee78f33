// Compaction after compaction in one growing conversation, never made exact in between: does what each of them costs
// add up? Every round replaces the memory and the two oldest exchanges by a new memory; four exchanges survive,
// an answer is scored, and two more exchanges come. The oracle computes every round anew.
import type { Message, Repair } from "../../src/chat/chat.ts";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import { tokensOf } from "../../src/text/span.ts";
import { planned, type Resident } from "./arms.ts";
import { build } from "./build.ts";
import { append, generate, prefill, readDistributions, readDistributionsFrom } from "./cells.ts";
import { type Conversation, converse, mechanicalMemory, memoryMessage, messagesOf } from "./conversation.ts";
import { readCorpus } from "./corpus.ts";
import { reportRequest } from "./prepared-conversation.ts";
import { type Row, type Scored, scored, scoreTurn, type TurnScore } from "./score.ts";
import type { ModelText } from "./text.ts";

export interface ChainRound {
  readonly round: number;
  readonly prompt: number;
  readonly arm: string;
  /** Along an answer that the oracle spoke. */
  readonly answer: TurnScore;
  /** Along the two exchanges that come next. */
  readonly text: TurnScore;
  /** Relocated cells after the compaction. */
  readonly stale: number;
}

interface Held extends Resident {
  readonly id: SequenceId;
}

const surviving = 4;
const perRound = 2;
const answerTokens = 32;

export const chainRepairs: readonly Repair[] = ["none", "assistant"];

export async function* chain(
  runner: Runner,
  text: ModelText,
  rounds: number,
  seed: number,
): AsyncGenerator<ChainRound, void, undefined> {
  const conversation = converse({
    seed,
    exchanges: surviving + perRound * (rounds + 1),
    removed: { start: 0, end: 1 },
    resultTokens: { least: 90, most: 220 },
    needlesPerKind: 0,
    texts: readCorpus(),
    countOf: (some) => text.countOf(some),
  });
  const first = await prefill(runner, tokensOf(text.spans(messagesAt(conversation, 0, perRound))));
  const { length, exactLength } = runner.sequence(first);
  let residents: Held[] = chainRepairs.map(() => ({
    id: runner.fork(first, length),
    spans: text.spans(messagesAt(conversation, 0, perRound)),
    relocated: [],
    exactLength,
  }));
  runner.release(first);
  for (let round = 1; round <= rounds; round++) {
    const before = messagesAt(conversation, round, 0);
    const after = messagesAt(conversation, round, perRound);
    const oracle = await prefill(runner, tokensOf(text.spans(before)));
    const turn = text.turn(before, [reportRequest]);
    const prompt = tokensOf(turn);
    const [answers] = await generate(runner, oracle, [{ prompt, most: answerTokens }], text.stopTokens);
    const reading = { prompt, text: answers! };
    const [answer] = await readDistributions(runner, oracle, [reading], (row) => row);
    const next = tokensOf(text.spans(after).slice(text.spans(before).length));
    const along = await goOn(runner, oracle, next, (row) => row);
    runner.release(oracle);
    const compacted: Held[] = [];
    for (const [index, repair] of chainRepairs.entries()) {
      const resident = residents[index]!;
      const edit = { resident, wanted: text.spans(before), keptSpans: 0, memorySpans: 0, turn };
      const recipe = planned(edit, "suffix", repair);
      const { relocated } = recipe;
      const id = await build(runner, resident.id, recipe, (tokens) => prefill(runner, tokens));
      runner.release(resident.id);
      const [own] = await readDistributions(runner, id, [reading], (row, _, index) =>
        scored(answer![index]!, row),
      );
      const further = await goOn(runner, id, next, (row, index) => scored(along[index]!, row));
      yield {
        round,
        prompt: runner.sequence(id).length,
        arm: `suffix repair=${repair}`,
        answer: scoreTurn(answer!, own!, answers!),
        stale: relocated.reduce((sum, { start, end }) => sum + end - start, 0),
        text: scoreTurn(along, further, next.subarray(1)),
      };
      const { exactLength } = runner.sequence(id);
      compacted.push({ id, relocated, exactLength, spans: text.spans(after) });
    }
    residents = compacted;
  }
  for (const { id } of residents) runner.release(id);
}

/** Memory of all that went by `round`, the four exchanges in front of it, and `more` that came after. */
function messagesAt({ head, exchanges }: Conversation, round: number, more: number): Message[] {
  const start = perRound * round;
  const gone = exchanges.slice(Math.max(0, start - 6), start);
  const memory = gone.length > 0 ? [memoryMessage(`ctx-${round}`, mechanicalMemory(gone, 4), [])] : [];
  return [...head, ...memory, ...messagesOf(exchanges.slice(start, start + surviving + more))];
}

/** Appends `next` to the sequence; returns distributions from its second token on. */
async function goOn<Kept extends Row | Scored>(
  runner: Runner,
  id: number,
  next: Int32Array,
  view: (row: Row, index: number) => Kept,
): Promise<Kept[]> {
  const kept = await readDistributionsFrom(runner, id, next[0]!, next.subarray(1), view);
  await append(runner, id, next.subarray(-1));
  return kept;
}
