// One conversation made ready: resident as a session would hold it, its compacted form, and the turns that are asked
// behind it. The oracle speaks the texts along which all arms are scored.
import type { Message } from "../../src/chat/chat.ts";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import { commonLength, tokensOf } from "../../src/text/span.ts";
import type { Edit } from "./arms.ts";
import { type Question, readDistributionsOnFork } from "./cells.ts";
import {
  type Conversation,
  converse,
  type Exchange,
  mechanicalMemory,
  memoryMessage,
  messagesOf,
  type Needle,
  noteOf,
  type Shape,
} from "./conversation.ts";
import { digestOf, type PrefillCache } from "./prefill-cache.ts";
import { type NeedleScore, needleScore } from "./statistics.ts";
import type { ModelText } from "./text.ts";

export interface Turn extends Question {
  readonly name: string;
}

export interface PreparedConversation {
  readonly seed: number;
  /** Names the compacted conversation and what is asked: lines of one seed with another name are not comparable. */
  readonly name: string;
  /** The conversation before the edit; the caller of `prepareConversation` releases it. */
  readonly resident: SequenceId;
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

export async function prepareConversation(
  prefills: PrefillCache,
  text: ModelText,
  shape: Shape,
): Promise<PreparedConversation> {
  const { runner } = prefills;
  const conversation = converse(shape);
  const { head, exchanges } = conversation;
  const { start, end } = shape.removed;
  const whole = [...head, ...messagesOf(exchanges.slice(0, shape.exchanges))];
  const spans = text.spans(whole);
  const id = await prefills.prefill(tokensOf(spans));
  const kept = [...head, ...messagesOf(exchanges.slice(0, start))];
  const removed = exchanges.slice(start, end);
  const notes = removed.flatMap(({ needles }) => needles.filter(({ kind }) => kind === "summary"));
  // As in the measurement this is compared with: by the model in every other conversation.
  const memory = shape.seed % 2 === 0 ? "model" : "list";
  const gone = [...kept, ...messagesOf(removed)];
  const written = memory === "model" ? await summarise(prefills, text, id, gone) : mechanicalMemory(removed);
  const memories = [memoryMessage("ctx-0001", written, notes)];
  const after = [...kept, ...memories, ...messagesOf(exchanges.slice(end, shape.exchanges))];
  const turns = turnsOf(conversation, shape).map(({ name, messages, most }) => ({
    name,
    most,
    prompt: tokensOf(text.turn(after, messages)),
  }));
  const all = exchanges.slice(0, shape.exchanges).flatMap(({ needles }) => needles);
  const wanted = text.spans(after);
  return {
    seed: shape.seed,
    name: digestOf("", [tokensOf(spans), tokensOf(wanted), ...turns.map(({ prompt }) => prompt)]),
    memory,
    turns,
    resident: id,
    needles: all.map((needle) => askedOf(needle, after, text)),
    edit: {
      resident: { spans, relocated: [], exactLength: runner.sequence(id).exactLength },
      wanted,
      keptSpans: text.spans(kept).length,
      memorySpans: memories.length,
      turn: text.turn(after, turnsOf(conversation, shape)[0]!.messages),
    },
  };
}

/** No more words than these: asked for the files one by one, small models copy the memory's list or call the tool. */
export const reportRequest: Message = { role: "user", content: "Write an intermediate report." };

function turnsOf({ exchanges }: Conversation, { removed, exchanges: count }: Shape) {
  const [seam, third] = [exchanges[removed.end]!, exchanges[Math.min(removed.end + 2, count - 1)]!];
  const quote = `One line in the part of ${seam.path} that you have read begins with "${beginningIn(seam)}". Quote that line and those that follow it, word for word. Write nothing else.`;
  const ask = `What exactly does the part of ${third.path} that you have read say about "${third.names[0]}"? Answer from the text of the tool's result.`;
  return [
    { name: "report", messages: [reportRequest], most: 128 },
    { name: "step", messages: [secondResult(exchanges[count]!)], most: 64 },
    { name: "quote", messages: [{ role: "user", content: quote } as const], most: 64 },
    { name: "ask", messages: [{ role: "user", content: ask } as const], most: 64 },
  ];
}

/**
 * One more result behind the last one, and no assistant message in front of it: the newest of those is a survivor.
 * As Qwen's template writes a tool's result, but in a turn of its own, since the result before it has ended.
 */
function secondResult({ result }: Exchange): Message {
  return { role: "user", content: `<tool_response>\n${result.content}\n</tool_response>` };
}

/** The first words of a line in the second half that has enough of them to be told from others. */
function beginningIn({ lines }: Exchange): string {
  const later = lines.slice(Math.floor(lines.length / 2)).map((line) => line.trim());
  const line = later.find(({ length }) => length >= 24) ?? later[0] ?? "";
  return line.split(" ").slice(0, 4).join(" ");
}

/** Asked on a fork that ends where the removed text ends, as the compressor does. */
async function summarise(
  prefills: PrefillCache,
  text: ModelText,
  id: SequenceId,
  before: readonly Message[],
): Promise<string> {
  const content =
    "Summarise what you have read since the first file: the files, the functions and types that matter, and what is still open. Write only the summary.";
  const fork = prefills.runner.fork(id, tokensOf(text.spans(before)).length);
  const prompt = tokensOf(text.turn(before, [{ role: "user", content }]));
  const [answers] = await prefills.speak(fork, [{ prompt, most: 180 }], text.stopTokens);
  prefills.runner.release(fork);
  return text.tokenizer.decode(answers!.filter((token) => !text.stopTokens.has(token))).trim();
}

/** The answer's beginning is given; what is scored is the number. */
function askedOf(needle: Needle, before: readonly Message[], text: ModelText): Asked {
  const content = `On which port does the service ${needle.service} listen? Answer in one sentence.`;
  const turn = tokensOf(text.turn(before, [{ role: "user", content }]));
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

/** In the order of the scene's needles. */
export async function ask(runner: Runner, id: SequenceId, needles: readonly Asked[]): Promise<NeedleScore[]> {
  const seen = await readDistributionsOnFork(runner, id, needles);
  return needles.map(({ texts }, index) => {
    const [right, ...wrong] = seen[index]!;
    return needleScore({ right: right!, rightIds: texts[0]!, wrong });
  });
}
