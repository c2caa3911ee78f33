// Where a compaction is measured: a model opened as the server opens it, its sessions in process and over a socket,
// and what one request cost. A conversation is prefilled once; every measurement begins with a fresh session that
// shares the cells of that prefill, which costs one token.
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import type { Manifest } from "../../models/manifest.ts";
import type { AnswerOptions, CacheUsage, Chat, ChatEvent, Message } from "../../src/chat/chat.ts";
import { type LocalModel, openLocalModel } from "../../src/cli/local-model.ts";
import { serverOptions } from "../../src/cli/serve.ts";
import { Config } from "../../src/config/config.ts";
import { buildServer } from "../../src/server/app.ts";
import type { Arm } from "./grid.ts";
import { gigaMultiplyAdds, Meter } from "./meter.ts";

export type Prompt = readonly Message[] | readonly number[];

export interface Reading {
  /** From the request to the first token. */
  readonly ms: number;
  readonly promptTokens: number;
  readonly cacheUsage: CacheUsage;
  /** 10^9 multiply-adds, counted from the steps. */
  readonly linear: number;
  readonly attention: number;
  /** More than before the request. */
  readonly pages: number;
}

export interface InProcessServerOptions {
  /** Of the model. */
  readonly folder: string;
  /** Of the pool. */
  readonly tokens: number;
  readonly kv: string;
  /** A folder where the prefill is kept for the next run of the same model. */
  readonly prefillCache?: string | undefined;
}

type Ask = (
  prompt: Prompt,
  options: AnswerOptions,
) => Promise<Pick<Reading, "ms" | "promptTokens" | "cacheUsage">>;

export class InProcessServer {
  readonly manifest: Manifest;
  readonly client: OpenAI;
  #sessions = 0;

  private constructor(
    private readonly model: LocalModel,
    private readonly meter: Meter,
    private readonly app: ReturnType<typeof buildServer>,
  ) {
    this.manifest = model.manifest;
    const { port } = app.server.address() as AddressInfo;
    const baseURL = `http://127.0.0.1:${port}/v1`;
    this.client = new OpenAI({ baseURL, apiKey: "none", timeout: 3_600_000, maxRetries: 0 });
  }

  static async open({ folder, tokens, kv, prefillCache }: InProcessServerOptions): Promise<InProcessServer> {
    const flags = {
      "cache.tokens": String(tokens),
      "cache.kv_type": kv,
      idle_repair: "false",
      "sessions.ttl": "0",
      log: "silent",
      ...(prefillCache !== undefined && { "cache.dir": prefillCache }),
    };
    const config = Config.read({ flags, environment: process.env });
    const meter = new Meter();
    const local = await openLocalModel(folder, config, { wrap: (runner) => meter.wrap(runner) });
    const app = buildServer(local.backend, serverOptions(config));
    await app.listen({ host: "127.0.0.1", port: 0 });
    return new InProcessServer(local, meter, app);
  }

  async close(): Promise<void> {
    await this.app.close();
    await this.model.close();
  }

  countText(text: string): number {
    return this.model.backend.tokenize(text, { addSpecial: false, parseSpecial: false }).length;
  }

  tokensOf(messages: readonly Message[]): readonly number[] {
    return this.model.backend.applyTemplate(messages).tokens;
  }

  /** The sessions of the model, for who speaks to them without being measured here. */
  get chat(): Chat {
    return this.model.backend;
  }

  /** 10^9 multiply-adds of the steps since the last call. */
  takeWork(): Pick<Reading, "linear" | "attention"> {
    return gigaMultiplyAdds(this.meter.take(), this.manifest.shapes);
  }

  /** Throws SESSION_NOT_FOUND. */
  drop(session: string): void {
    this.model.backend.deleteSession(session);
  }

  /** Of the conversation that all others begin with. Stays resident. */
  prefill(prompt: Prompt): Promise<Reading> {
    return this.read(prompt, { session: "base" });
  }

  /** A session that holds `base`, for one measurement after the other; gone afterwards. */
  async withSession<T>(base: Prompt, measure: (session: string) => Promise<T>): Promise<T> {
    const session = `measured-${++this.#sessions}`;
    await this.read(base, { session });
    try {
      return await measure(session);
    } finally {
      this.drop(session);
    }
  }

  /** What the arm asks for, in process or over HTTP. */
  readArm(prompt: Prompt, session: string, { reuse, repair, forget }: Arm, isHttp = false): Promise<Reading> {
    return this.read(prompt, { session, reuse, repair, ...(forget && { forget }) }, isHttp);
  }

  /** Distinct shifts of the session's cells: query rotations per step and layer. */
  shifts(session: string): number {
    return new Set(this.model.backend.session(session).shifts.map(({ shift }) => shift)).size;
  }

  async read(prompt: Prompt, options: AnswerOptions, isHttp = false): Promise<Reading> {
    const { backend } = this.model;
    const before = backend.counts().pagesUsed;
    this.takeWork();
    const ask: Ask = isHttp ? this.#askHttp : this.#askSession;
    const answer = await ask(prompt, { repair: "none", ...options, maxTokens: 1, temperature: 0 });
    return { ...answer, ...this.takeWork(), pages: backend.counts().pagesUsed - before };
  }

  readonly #askSession: Ask = async (prompt, options) => {
    const { backend } = this.model;
    const begin = performance.now();
    const events: AsyncIterable<ChatEvent> = isTokens(prompt)
      ? backend.complete({ ...options, prompt })
      : backend.chat({ ...options, messages: prompt });
    for await (const event of events) {
      if (event.type !== "answer-finished") continue;
      const { promptTokens, cacheUsage } = event;
      return { ms: performance.now() - begin, promptTokens, cacheUsage };
    }
    throw new Error("The answer ended without cache usage.");
  };

  /** As a plain client: an event stream, its first chunk with text. */
  readonly #askHttp: Ask = async (prompt, { session, reuse, repair, forget }) => {
    const begin = performance.now();
    const body = {
      model: this.manifest.id,
      max_tokens: 1,
      temperature: 0,
      stream: true as const,
      stream_options: { include_usage: true },
      pocket: { session, reuse, repair, forget },
    };
    const { chat, completions } = this.client;
    const chunks = isTokens(prompt)
      ? await completions.create({ ...body, prompt: [...prompt] })
      : await chat.completions.create({
          ...body,
          messages: [...prompt] as OpenAI.ChatCompletionMessageParam[],
        });
    let ms = Number.NaN;
    let promptTokens = 0;
    let cacheUsage: CacheUsage | undefined;
    for await (const chunk of chunks) {
      // An answer may be a token without text; then its end is when it came.
      const [choice] = chunk.choices;
      if (Number.isNaN(ms) && choice && (textOf(choice) || choice.finish_reason))
        ms = performance.now() - begin;
      promptTokens = chunk.usage?.prompt_tokens ?? promptTokens;
      cacheUsage = (chunk as { readonly pocket?: CacheUsage }).pocket ?? cacheUsage;
    }
    if (!cacheUsage) throw new Error("The stream ended without cache usage.");
    return { ms, promptTokens, cacheUsage };
  };
}

function isTokens(prompt: Prompt): prompt is readonly number[] {
  return typeof prompt[0] === "number";
}

function textOf(choice: { readonly text?: string; readonly delta?: { readonly content?: string | null } }) {
  return choice.text ?? choice.delta?.content;
}
