// What an agent run needs: a Chat, a token counter that fits it, the store of runs. The model is in this process or
// on any OpenAI-compatible server.
import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import type { Chat } from "../chat/chat.ts";
import type { Config } from "../config/config.ts";
import type { CountTokens } from "../context/block.ts";
import { Store } from "../context/store.ts";
import { pocketError } from "../errors.ts";
import { HttpChat } from "../harness/http-chat.ts";
import type { Backend } from "../server/backend.ts";
import { folderOf } from "./import.ts";
import { openLocalModel } from "./local-model.ts";

export interface AgentRuntime {
  readonly chat: Chat;
  readonly count: CountTokens;
  /** Tokens that a conversation may have here. */
  readonly context: number;
  /** Default window of a run. */
  readonly window: number;
  close(): Promise<void>;
}

/** Throws STORE_UNUSABLE. */
export function openStore(config: Config): Store {
  const file = config.text("agent.runs");
  try {
    mkdirSync(dirname(file), { recursive: true });
  } catch (cause) {
    throw pocketError("STORE_UNUSABLE", file, (cause as Error).message);
  }
  return new Store(file);
}

/** The model in this process. The pool holds a window and the forks of the compressor. */
export async function openLocalRuntime(model: string, config: Config): Promise<AgentRuntime> {
  const { backend, close } = await openLocalModel(folderOf(model, config), config);
  const context = Math.min(backend.model.context, config.number("cache.tokens"));
  return { chat: backend, count: localCount(backend), context, window: localWindow(backend, config), close };
}

export function localCount(backend: Backend): CountTokens {
  return counterOf((text) => backend.tokenize(text, { addSpecial: false, parseSpecial: false }).length);
}

/** Default window: half the pool, so that a fork and the version before an edit also fit. */
export function localWindow(backend: Pick<Backend, "model">, config: Config): number {
  return Math.min(backend.model.context, Math.floor(config.number("cache.tokens") / 2));
}

/** A server over HTTP; its API key comes from OPENAI_API_KEY. */
export async function openRemoteRuntime(model: string, baseUrl: string): Promise<AgentRuntime> {
  const apiKey = process.env.OPENAI_API_KEY;
  const isPlain = !(await isPocketServer(baseUrl, apiKey));
  const chat = new HttpChat({ baseUrl, model, isPlain, ...(apiKey ? { apiKey } : {}) });
  // The tokenizer is unknown. Three characters per token overestimates the tokens of most texts, so windows hold.
  const count = counterOf((text) => Math.ceil(text.length / 3));
  return { chat, count, context: Number.MAX_SAFE_INTEGER, window: 32_768, close: async () => {} };
}

/** Whether the server is Pocket; false if it cannot be reached, which the first request reports. */
async function isPocketServer(baseUrl: string, apiKey: string | undefined): Promise<boolean> {
  try {
    const response = await fetch(`${baseUrl.replace(/\/+$/, "")}/models`, {
      headers: apiKey ? { authorization: `Bearer ${apiKey}` } : {},
      signal: AbortSignal.timeout(5000),
    });
    const { data } = (await response.json()) as {
      readonly data?: readonly { readonly owned_by?: unknown }[];
    };
    return data?.some(({ owned_by }) => owned_by === "pocket") === true;
  } catch {
    return false;
  }
}

/** Counts text and calls of a message and an estimate of the template around them. */
export function counterOf(tokensOf: (text: string) => number): CountTokens {
  return ({ content, toolCalls = [] }) =>
    5 +
    tokensOf(content) +
    toolCalls.reduce((sum, { name, arguments: json }) => sum + 16 + tokensOf(`${name}${json}`), 0);
}
