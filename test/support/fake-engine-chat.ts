// A chat on the scripted engine, and helpers that tests of src/session share.
import { expect } from "vitest";
import type { ChatEvent, ChatRequest, Message } from "../../src/chat/chat.ts";
import { greedy } from "../../src/engine/job.ts";
import { LocalChat, type LocalChatOptions } from "../../src/session/local-chat.ts";
import { FakeEngine, type Model, scripted } from "./fake-engine.ts";
import { smallText } from "./small-tokenizer.ts";

const text = smallText();
export const { tokenizer } = text;
const endOfTurn = tokenizer.idOf("<|im_end|>")!;
const opening = Array.from(tokenizer.encodeTemplate("<|im_start|>assistant\n"));
const isTurn = (tokens: readonly number[]) =>
  opening.every((id, index) => tokens.at(index - opening.length) === id);

/** One token per byte: different ids from those that encoding the text would give. */
export function spell(answer: string): number[] {
  return Array.from(Buffer.from(answer)).flatMap((byte) => Array.from(bytewise(byte)));
}

function bytewise(byte: number): number[] {
  for (let id = 0; id < 256; id++) if (tokenizer.bytesOf(id)[0] === byte) return [id];
  throw new Error(`No token for byte ${byte}.`);
}

export function localChat(
  model: Model,
  options: { readonly capacity?: number; readonly context?: number } & Partial<LocalChatOptions> = {},
) {
  const engine = new FakeEngine(model, options);
  const chat = new LocalChat({ engine, ...text, sessionsMax: 8, sampling: greedy, ...options });
  return { engine, chat };
}

export const says = (...answers: string[]) => scripted(answers.map(spell), endOfTurn, isTurn);

export async function ask(chat: LocalChat, request: ChatRequest) {
  return summary(await collect(chat.chat(request)));
}

export async function collect(events: AsyncIterable<ChatEvent>): Promise<ChatEvent[]> {
  const seen: ChatEvent[] = [];
  for await (const event of events) seen.push(event);
  return seen;
}

export function summary(events: readonly ChatEvent[]) {
  const planned = events[0] as ChatEvent & { type: "prompt-planned" };
  const finished = events.at(-1) as ChatEvent & { type: "answer-finished" };
  expect([planned.type, finished.type]).toEqual(["prompt-planned", "answer-finished"]);
  const deltas = events.slice(1, -1) as (ChatEvent & { type: "text-delta" })[];
  for (const delta of deltas) expect(delta.type).toBe("text-delta");
  const { cacheUsage, promptTokens } = finished;
  expect(cacheUsage.kept + cacheUsage.relocated + cacheUsage.computed).toBe(promptTokens);
  return { ...finished, deltas, planned, answer: deltas.map((delta) => delta.text).join("") };
}

/** Stops edits and steps until it is opened. */
export function closedGate(engine: FakeEngine): { readonly open: () => void } {
  let release = () => {};
  engine.gate = new Promise((resolve) => {
    release = resolve;
  });
  return {
    open: () => {
      engine.gate = undefined;
      release();
    },
  };
}

export const system: Message = { role: "system", content: "You keep the house and tell the truth about it." };
export const user = (content: string): Message => ({ role: "user", content });
export const assistant = (content: string): Message => ({ role: "assistant", content });
export const long = (name: string) =>
  `${name}: ${Array.from({ length: 30 }, (_, at) => `${name} ${at}`).join(", ")}.`;

export const history: readonly Message[] = [
  system,
  user(long("a")),
  assistant(long("b")),
  user(long("c")),
  assistant(long("d")),
  user(long("e")),
];
/** The history with its oldest two exchanges summarised. */
export const compacted: readonly Message[] = [system, user("Told: a and b."), ...history.slice(3)];

/** Expects the cells to be the rendered prompt and the answer's tokens without the last one, which has no cell. */
export function expectCells(
  chat: LocalChat,
  engine: FakeEngine,
  messages: readonly Message[],
  fed: readonly number[],
) {
  const expected = [...chat.applyTemplate(messages).tokens, ...fed];
  expect(Array.from(engine.sequences, ({ all }) => all)).toContainEqual(expected);
}
