// Session, engine and addon on the seeded tiny model, without a socket. Gives access to the real runner. Sampling is
// greedy unless a test changes it, so that two answers can be compared.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AnswerOptions, CacheUsage, ChatEvent, Message } from "../../src/chat/chat.ts";
import { openLocalModel } from "../../src/cli/local-model.ts";
import { Config } from "../../src/config/config.ts";
import type { Runner } from "../../src/engine/addon.ts";
import type { Backend } from "../../src/server/backend.ts";
import { ensureTinyModel, type TinyOptions } from "./tiny-model.ts";

export interface Answered {
  readonly text: string;
  readonly finish: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cacheUsage: CacheUsage;
}

export interface TinyStack {
  readonly backend: Backend;
  readonly runner: Runner;
  /** Text, token ids or messages. Rejects as the answer does. */
  ask(prompt: Prompt, options?: AnswerOptions): Promise<Answered>;
  /** A cold start: reuses nothing, and its session is deleted afterwards. */
  cold(prompt: Prompt, options?: AnswerOptions): Promise<Answered>;
  /** Deletes all sessions without a tenant. */
  clear(): void;
  /** Releases all sessions and waits until their pages are free. */
  release(): Promise<void>;
  close(): Promise<void>;
}

export type Prompt = string | readonly number[] | readonly Message[];

export interface TinyStackOptions {
  readonly model?: Partial<TinyOptions>;
  /** Settings on top, by key. */
  readonly flags?: Readonly<Record<string, string>>;
  readonly wrap?: (runner: Runner) => Runner;
  /** Default: warnings are dropped. */
  readonly log?: (sentence: string) => void;
}

export async function openTinyStack({
  model = {},
  flags = {},
  wrap,
  log = () => undefined,
}: TinyStackOptions = {}): Promise<TinyStack> {
  const directory = mkdtempSync(join(tmpdir(), "pocket-stack-"));
  const folder = await ensureTinyModel(directory, model);
  const given = {
    "cache.tokens": "8192",
    "cache.kv_type": "f32",
    activations: "f32",
    "sampling.repetition_penalty": "1",
    "sampling.temperature": "0",
    repair: "none",
    idle_repair: "false",
    threads: "2",
    ...flags,
  };
  let runner: Runner | undefined;
  const opened = await openLocalModel(folder, Config.read({ flags: given, environment: {} }), {
    wrap(real) {
      runner = real;
      return wrap ? wrap(real) : real;
    },
    log,
  });
  const { backend } = opened;
  const stack: TinyStack = {
    backend,
    runner: runner!,
    ask: (prompt, options = {}) => gathered(eventsOf(backend, prompt, { maxTokens: 8, ...options })),
    async cold(prompt, options = {}) {
      const session = `cold-${Math.random()}`;
      const answer = await stack.ask(prompt, { ...options, session, reuse: "none" });
      backend.deleteSession(session, options.tenant);
      return answer;
    },
    clear() {
      for (const { id } of backend.sessions()) backend.deleteSession(id);
    },
    async release() {
      await opened.release();
      await until(() => runner!.stats().sequences === 0);
    },
    async close() {
      await opened.close();
      rmSync(directory, { recursive: true });
    },
  };
  return stack;
}

export function eventsOf(backend: Backend, prompt: Prompt, options: AnswerOptions): AsyncIterable<ChatEvent> {
  if (typeof prompt === "string" || isIds(prompt)) return backend.complete({ ...options, prompt });
  return backend.chat({ ...options, messages: prompt });
}

async function gathered(events: AsyncIterable<ChatEvent>): Promise<Answered> {
  let text = "";
  for await (const event of events) {
    if (event.type === "text-delta") text += event.text;
    if (event.type !== "answer-finished") continue;
    const { reason: finish, promptTokens, completionTokens, cacheUsage } = event;
    return { text, finish, promptTokens, completionTokens, cacheUsage };
  }
  throw new Error("the answer had no end");
}

function isIds(prompt: readonly number[] | readonly Message[]): prompt is readonly number[] {
  return typeof prompt[0] === "number";
}

/** Rejects when it does not hold within ten seconds. */
export async function until(holds: () => boolean): Promise<void> {
  const end = Date.now() + 10_000;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`still not so after ten seconds: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export const user = (content: string): Message => ({ role: "user", content });
export const assistant = (content: string): Message => ({ role: "assistant", content });
export const system = (content: string): Message => ({ role: "system", content });

/** Ids that look like nothing else: no two stretches of two salts agree. */
export const ids = (length: number, salt = 0): number[] =>
  Array.from({ length }, (_, index) => (index * 37 + salt * 101 + (index >> 3) * 11) % 250);

/** Turns of a conversation, all different, each about `words` * 6 tokens. */
export function turns(count: number, name: string, words = 6): Message[] {
  const said = (turn: number) =>
    Array.from({ length: words }, (_, at) => `${name}${turn * 31 + at}`).join(" ");
  return Array.from({ length: count }, (_, turn) => (turn % 2 === 0 ? user : assistant)(said(turn)));
}
