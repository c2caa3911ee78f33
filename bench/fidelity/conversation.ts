// Conversations of an agent that reads files, made up from a seed: system, task, then exchanges of an assistant
// message that says what it saw and calls for the next file, and the tool's result. Some results carry a needle:
// a port that occurs nowhere else. What is removed, what survives and what is asked is decided here; no tokens
// are computed.

import type { Message } from "../../src/chat/chat.ts";
import { type Random, seeded } from "../../test/support/random.ts";
import { type Excerpt, namesIn } from "./corpus.ts";

export type NeedleKind = "survivor" | "summary" | "removed";

export interface Needle {
  readonly kind: NeedleKind;
  readonly service: string;
  readonly port: string;
  /** Ports that occur nowhere. */
  readonly decoys: readonly string[];
}

export interface Exchange {
  readonly path: string;
  readonly names: readonly string[];
  /** Lines of the result, needles left out. */
  readonly lines: readonly string[];
  readonly assistant: Message;
  readonly result: Message;
  readonly needles: readonly Needle[];
}

export interface Shape {
  readonly seed: number;
  readonly exchanges: number;
  /** Exchanges [start, end) are replaced by a memory. */
  readonly removed: { readonly start: number; readonly end: number };
  /** Tokens of a tool's result. */
  readonly resultTokens: { readonly least: number; readonly most: number };
  readonly needlesPerKind: number;
  /** What the tool reads. */
  readonly texts: readonly Excerpt[];
  readonly countOf: (text: string) => number;
}

export interface Conversation {
  readonly head: readonly Message[];
  /** One more than the shape says: the last is the agent's next step. */
  readonly exchanges: readonly Exchange[];
}

const system = `You are an agent that reads a source tree for an engineer. You have one tool, read_file, with the arguments path, offset and limit; it returns lines of a text file. Say in a few sentences what you learnt from the last result, naming the functions and types you saw, and then call the tool for the next file with one JSON object on a line of its own. Read one file at a time. Do not guess what a file contains before you have read it, and do not repeat a file. When you are asked for a report, write it from what you have read.`;

const goals = [
  "how a request travels from the socket to the first computed token, and which file decides what is computed again",
  "where numbers cross from one unit into another, and whether any of these places could lose precision",
  "which parts may fail halfway, and how each of them leaves its state behind when it does",
  "who owns memory in this program, when it is given back, and what may still point to it",
  "how files are written and read, and what happens to a file that was cut short",
  "which names a newcomer has to learn first, and in which order the rooms are best read",
];

const services = "amber birch cobalt delta ember falcon garnet harbor indigo juniper kestrel lumen".split(
  " ",
);

export function converse(shape: Shape): Conversation {
  const random = seeded(shape.seed * 7919 + 17);
  const excerpts = shuffled(shape.texts, random);
  const needles = makeNeedles(shape, random);
  const head: Message[] = [
    { role: "system", content: system },
    { role: "user", content: `Find out ${goals[shape.seed % goals.length]}. Begin wherever you like.` },
  ];
  const exchanges: Exchange[] = [];
  for (let place = 0; place <= shape.exchanges; place++) {
    const excerpt = excerpts[place % excerpts.length]!;
    const own = needles.filter((needle) => needle.place === place).map(({ needle }) => needle);
    exchanges.push(exchangeOf(place, excerpt, exchanges, own, shape, random));
  }
  return { head, exchanges };
}

export function messagesOf(exchanges: readonly Exchange[]): Message[] {
  return exchanges.flatMap(({ assistant, result }) => [assistant, result]);
}

export function noteOf({ service, port }: Needle): string {
  return `The service ${service} listens on port ${port}.`;
}

export function memoryMessage(tag: string, text: string, notes: readonly Needle[]): Message {
  const noted = notes.map((needle) => `\n${noteOf(needle)}`).join("");
  return { role: "user", content: `[memory ${tag}, in place of earlier messages]\n${text}${noted}` };
}

/** Files and names, without a model; at most about `most` tokens. */
export function mechanicalMemory(exchanges: readonly Exchange[], namesEach = 5): string {
  const lines = exchanges.map(({ path, names }) => `- ${path}: ${names.slice(0, namesEach).join(", ")}`);
  return `Files read so far and names seen in them:\n${lines.join("\n")}`;
}

function makeNeedles(
  { exchanges, removed, needlesPerKind }: Shape,
  random: Random,
): readonly { readonly place: number; readonly needle: Needle }[] {
  const names = shuffled(services, random);
  const within = (start: number, end: number) => start + Math.floor(random() * (end - start));
  const port = () => String(10_000 + Math.floor(random() * 55_000));
  const kinds: readonly NeedleKind[] = ["survivor", "summary", "removed"];
  return kinds.flatMap((kind, row) =>
    Array.from({ length: needlesPerKind }, (_, count) => ({
      place: kind === "survivor" ? within(removed.end, exchanges) : within(removed.start, removed.end),
      needle: {
        kind,
        service: names[row * needlesPerKind + count]!,
        port: port(),
        decoys: [port(), port()],
      },
    })),
  );
}

function exchangeOf(
  place: number,
  excerpt: Excerpt,
  before: readonly Exchange[],
  needles: readonly Needle[],
  { countOf, resultTokens: { least, most } }: Shape,
  random: Random,
): Exchange {
  const { path } = excerpt;
  const { offset, lines } = partOf(excerpt, least + random() * (most - least), countOf, random);
  const names = shuffled(namesIn(lines.join("")), random);
  const shown = [...lines];
  for (const needle of needles)
    shown.splice(1 + Math.floor(random() * shown.length), 0, `${noteOf(needle)}\n`);
  const call = JSON.stringify({ name: "read_file", arguments: { path, offset, limit: shown.length } });
  return {
    path,
    names,
    lines,
    assistant: { role: "assistant", content: `${sentence(place, before, path, random)}\n${call}` },
    result: { role: "tool", content: shown.join("") },
    needles,
  };
}

/** Source has four bytes a token or fewer, so a part that leaves these has `wanted` tokens. */
const bytesPerToken = 4.5;

/** About `wanted` tokens from somewhere in a file; `offset` counts lines from 1. */
function partOf({ lines }: Excerpt, wanted: number, countOf: Shape["countOf"], random: Random) {
  const bytes = lines.reduce((sum, { length }) => sum + length, 0);
  let skipped = random() * Math.max(0, bytes - bytesPerToken * wanted);
  const found = lines.findIndex(({ length }) => {
    skipped -= length;
    return skipped < 0;
  });
  const start = Math.max(0, found);
  const shown: string[] = [];
  let tokens = 0;
  for (const line of lines.slice(start)) {
    if (tokens >= wanted) break;
    shown.push(line);
    tokens += countOf(line);
  }
  return { offset: start + 1, lines: shown };
}

/** What the agent says in front of its call: names from the last result and from two earlier ones. */
function sentence(place: number, before: readonly Exchange[], path: string, random: Random): string {
  const last = before.at(-1);
  if (!last) return `The name of ${path} promises a way into this, so it comes first.`;
  const [one = last, two = one] = shuffled(before.slice(0, -1), random);
  const name = ({ names }: Exchange, rank: number) => names[rank] ?? "its head";
  const [a, b] = [name(last, 0), name(last, 1)];
  const [c, d] = [name(one, 2), name(one, 3)];
  const [e, f] = [name(two, 4), name(two, 5)];
  const said = [
    `${last.path} is about \`${a}\` and \`${b}\`. In ${one.path} I had seen \`${c}\`, which seems to rely on the same idea as \`${d}\`, so I keep both in mind. What is still open is who fills \`${e}\` in ${two.path}, and whether \`${f}\` may be empty at that point. I read ${path} next to find out.`,
    `Two names from earlier files come back to me: \`${c}\` and \`${d}\` of ${one.path}. They decide what \`${a}\` in ${last.path} only carries out, and \`${b}\` with it. I do not know yet how \`${e}\` and \`${f}\` of ${two.path} fit in; ${path} is the likeliest place, so I look there now.`,
    `That was useful: \`${a}\` in ${last.path} is checked before \`${b}\` runs. Together with \`${c}\` and \`${d}\` from ${one.path} this makes a chain, but one link is missing between it and \`${e}\` in ${two.path}, where \`${f}\` stands alone. The next file to read for it is ${path}.`,
    `What ${two.path} does with \`${e}\` and \`${f}\` is the other way round here: ${last.path} has \`${a}\` in front of \`${b}\`. I had noted \`${c}\` of ${one.path} as the rule, and \`${d}\` as its exception. To see which of the two holds, I continue with ${path}.`,
  ];
  return said[(place + Math.floor(random() * 2)) % said.length]!;
}

function shuffled<Item>(items: readonly Item[], random: Random): Item[] {
  const out = [...items];
  for (let at = out.length - 1; at > 0; at--) {
    const other = Math.floor(random() * (at + 1));
    [out[at], out[other]] = [out[other]!, out[at]!];
  }
  return out;
}
