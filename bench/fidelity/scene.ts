// One conversation made ready: resident as a session would hold it, its compacted form, and the turns that are asked
// behind it. The oracle speaks the texts along which all arms are scored.
import type { Message } from "../../src/context/chat.ts";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import { tokensOf } from "../../src/text/span.ts";
import { type Edit, turnTokens } from "./arms.ts";
import { lookAside, prefill, type Question, speak } from "./cells.ts";
import {
  type Conversation,
  converse,
  mechanicalMemory,
  memoryMessage,
  messagesOf,
  type Needle,
  noteOf,
  type Shape,
} from "./conversation.ts";
import { type NeedleScore, needleScore } from "./statistics.ts";
import type { ModelText } from "./text.ts";

export interface Turn extends Question {
  readonly name: string;
}

export interface Scene {
  readonly edit: Edit;
  readonly turns: readonly Turn[];
  readonly needles: readonly Asked[];
  readonly memory: "model" | "list";
}

/** A question about a needle; the first of the answers is the right one. */
interface Asked {
  readonly needle: Needle;
  readonly prompt: Int32Array;
  readonly texts: readonly Int32Array[];
}

export async function setScene(runner: Runner, text: ModelText, shape: Shape): Promise<Scene> {
  const conversation = converse(shape);
  const { head, exchanges } = conversation;
  const { start, end } = shape.removed;
  const whole = [...head, ...messagesOf(exchanges.slice(0, shape.exchanges))];
  const spans = text.spans(whole);
  const id = await prefill(runner, tokensOf(spans));
  const kept = [...head, ...messagesOf(exchanges.slice(0, start))];
  const removed = exchanges.slice(start, end);
  const notes = removed.flatMap(({ needles }) => needles.filter(({ kind }) => kind === "summary"));
  // As in the measurement this is compared with: by the model in every other conversation.
  const memory = shape.seed % 2 === 0 ? "model" : "list";
  const gone = [...kept, ...messagesOf(removed)];
  const written = memory === "model" ? await summarise(runner, text, id, gone) : mechanicalMemory(removed);
  const memories = [memoryMessage("ctx-0001", written, notes)];
  const after = [...kept, ...memories, ...messagesOf(exchanges.slice(end, shape.exchanges))];
  const turns = turnsOf(conversation, shape).map(({ name, messages, most }) => ({
    name,
    most,
    prompt: turnTokens(text.turn(after, messages)),
  }));
  const all = exchanges.slice(0, shape.exchanges).flatMap(({ needles }) => needles);
  return {
    memory,
    turns,
    needles: all.map((needle) => askedOf(needle, after, text)),
    edit: {
      runner,
      resident: { id, spans, relocated: [] },
      wanted: text.spans(after),
      keptSpans: text.spans(kept).length,
      memorySpans: memories.length,
      turn: text.turn(after, turnsOf(conversation, shape)[0]!.messages),
    },
  };
}

export const reportRequest: Message = {
  role: "user",
  content:
    "Write an intermediate report now: what you have read so far, file by file, what each of them is for, and what is still open. Do not call the tool.",
};

function turnsOf({ exchanges }: Conversation, { removed, exchanges: count }: Shape) {
  const seam = exchanges[removed.end]!;
  const quote = `Quote the first five lines of ${seam.path} word for word, as they stand in the tool's result. Write nothing else.`;
  return [
    { name: "report", messages: [reportRequest], most: 128 },
    { name: "step", messages: messagesOf([exchanges[count]!]), most: 64 },
    { name: "quote", messages: [{ role: "user", content: quote } as const], most: 64 },
  ];
}

/** Asked on a fork that ends where the removed text ends, as the compressor does. */
async function summarise(
  runner: Runner,
  text: ModelText,
  id: SequenceId,
  before: readonly Message[],
): Promise<string> {
  const content =
    "Summarise what you have read since the first file in at most 120 words: the files, the functions and types that matter, and what is still open. Write only the summary.";
  const fork = runner.fork(id, tokensOf(text.spans(before)).length);
  const prompt = turnTokens(text.turn(before, [{ role: "user", content }]));
  const [spoken] = await speak(runner, fork, [{ prompt, most: 180 }], text.stopTokens);
  runner.release(fork);
  return text.tokenizer.decode(spoken!.filter((token) => !text.stopTokens.has(token))).trim();
}

/** The answer's beginning is given; what is scored is the number. */
function askedOf(needle: Needle, before: readonly Message[], text: ModelText): Asked {
  const content = `On which port does the service ${needle.service} listen? Answer in one sentence.`;
  const turn = turnTokens(text.turn(before, [{ role: "user", content }]));
  const encode = (port: string) => {
    const sentence = noteOf({ ...needle, port });
    return text.tokenizer.encodeContent(sentence.slice(0, sentence.indexOf(port) + port.length));
  };
  const texts = [needle.port, ...needle.decoys].map(encode);
  const start = text.tokenizer.encodeContent(noteOf({ ...needle, port: "" }).replace(/ \.$/, ""));
  const given = Math.min(...texts.map((ids) => commonLength(ids, start)));
  return {
    needle,
    prompt: Int32Array.of(...turn, ...texts[0]!.subarray(0, given)),
    texts: texts.map((ids) => ids.slice(given)),
  };
}

function commonLength(a: Int32Array, b: Int32Array): number {
  const differs = a.findIndex((id, place) => id !== b[place]);
  return differs < 0 ? a.length : differs;
}

/** In the order of the scene's needles. */
export async function ask(runner: Runner, id: SequenceId, needles: readonly Asked[]): Promise<NeedleScore[]> {
  const seen = await lookAside(runner, id, needles);
  return needles.map(({ texts }, place) => {
    const [right, ...wrong] = seen[place]!;
    return needleScore({ right: right!, rightIds: texts[0]!, wrong });
  });
}
