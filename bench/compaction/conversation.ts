// The conversations that are compacted: an agent that reads this repository's own source, in exchanges of about
// 250 tokens of which a seventh are the assistant's, and what a compaction makes of them. Pure but for reading the
// files; longer conversations begin with the shorter ones, so one prefill serves all.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Message } from "../../src/chat/chat.ts";
import type { CutPosition } from "./grid.ts";

export type CountText = (text: string) => number;
export type CountPrompt = (messages: readonly Message[]) => number;

/** Half-open, in exchanges. */
export interface Removal {
  readonly start: number;
  readonly end: number;
}

/** A user's message and the assistant's behind it. */
export type Exchange = readonly [Message, Message];

const userTokens = 205;
const assistantTokens = 35;

const system: Message = {
  role: "system",
  content: "You are a careful engineer. You read a repository piece by piece and note what matters.",
};
const closing: Message = { role: "user", content: "Go on with what comes next." };

/** Source text of a folder, files in order of their names. */
export function sourceText(folder: string): string {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    /\.ts$/.test(name),
  );
  return names
    .toSorted()
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("\n");
}

/** As many exchanges as the text gives, at most `most`. */
export function exchangesOf(text: string, count: CountText, most: number): Exchange[] {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const exchanges: Exchange[] = [];
  let place = 0;
  const take = (tokens: number): string => {
    const from = place;
    for (let sum = 0; sum < tokens && place < lines.length; place++) sum += count(`${lines[place]}\n`);
    return lines.slice(from, place).join("\n");
  };
  while (exchanges.length < most && place < lines.length) {
    const number = exchanges.length + 1;
    const user: Message = { role: "user", content: `Part ${number}:\n${take(userTokens)}` };
    const noted = clipped(`Part ${number} noted: ${take(assistantTokens)}`, assistantTokens, count);
    exchanges.push([user, { role: "assistant", content: noted }]);
  }
  return exchanges;
}

/** The messages of a prompt out of exchanges and memories. */
export function promptOf(middle: readonly (Exchange | Message)[]): Message[] {
  return [system, ...middle.flat(), closing];
}

/** The most exchanges whose prompt has at most `context` tokens. */
export function fitting(exchanges: readonly Exchange[], context: number, count: CountPrompt): Exchange[] {
  let low = 0;
  let high = exchanges.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (count(promptOf(exchanges.slice(0, middle))) <= context) low = middle;
    else high = middle - 1;
  }
  return exchanges.slice(0, low);
}

/** The latest exchange is protected, as it is in an agent's history; a removal at the end stops in front of it. */
export function removalOf(exchanges: number, place: CutPosition, share: number): Removal {
  const count = Math.max(1, Math.min(exchanges - 1, Math.round(share * exchanges)));
  const start = { front: 0, middle: Math.floor((exchanges - count) / 2), end: exchanges - 1 - count }[place];
  return { start, end: start + count };
}

/** A removal in so many pieces, one behind the other; undefined when there are not enough exchanges. */
export function pieces({ start, end }: Removal, count: number): Removal[] | undefined {
  if (end - start < count) return undefined;
  const edge = (piece: number) => start + Math.floor((piece * (end - start)) / count);
  return Array.from({ length: count }, (_, piece) => ({ start: edge(piece), end: edge(piece + 1) }));
}

/** Exactly `tokens` tokens of prose; another text for each number. */
export function summaryText(tokens: number, number: number, count: CountText): string {
  const words = Array.from({ length: tokens }, (_, place) => prose[(place + number * 5) % prose.length]!);
  const text = clipped(`Summary ${number} of what was removed: ${words.join(" ")}`, tokens, count);
  const short = tokens - count(text);
  return text + " and".repeat(short);
}

export function memoryOf(summary: string): Message {
  return { role: "user", content: summary };
}

/** The longest beginning in whole words of at most `tokens` tokens. */
function clipped(text: string, tokens: number, count: CountText): string {
  const words = text.split(/(?<=\S)(?=\s)/);
  let low = 1;
  let high = words.length;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (count(words.slice(0, middle).join("")) <= tokens) low = middle;
    else high = middle - 1;
  }
  return words.slice(0, low).join("");
}

const prose =
  "the paged cache keeps survivors where they lie and turns the query once per stretch of equal shift while a summary of what went is computed in front of them so an edit costs its own words only".split(
    " ",
  );
