// The landing between messages and tokens (design §4): it implements the Chat port on the local engine. A
// request is rendered to spans, a session is checked out and its edit planned, the job runs, and text rises;
// whatever happens the session goes back. It knows no HTTP, and no policy about rewriting a conversation.
import type {
  AnswerOptions,
  Chat,
  ChatEvent,
  ChatRequest,
  CompletionRequest,
  Message,
  Repair,
  Reuse,
  SamplingOptions,
  Tool,
} from "../chat/chat.ts";
import type { EnginePort, JobSampling } from "../engine/job.ts";
import { PocketError } from "../errors.ts";
import { Grammars, type TokenConstraint } from "../text/grammar.ts";
import { NoToolCallMask } from "../text/no-tool-call-mask.ts";
import type { Prompt, Renderer } from "../text/render.ts";
import { lengthOf, type Span, spanOf, tokensOf } from "../text/span.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { ToolCallOptions } from "../text/tool-calls.ts";
import { AnswerTokenCache } from "./answer/answer-token-cache.ts";
import { constrain } from "./answer/constraint.ts";
import { OutputProcessor } from "./answer/output-processor.ts";
import { Reply } from "./answer/reply.ts";
import { DiskTier } from "./disk/disk-tier.ts";
import { answerLength } from "./limits.ts";
import { Sessions } from "./residency/sessions.ts";
import type { SessionInfo, SessionMap, SessionStats } from "./session-info.ts";

export type SamplingDefaults = Required<Omit<SamplingOptions, "seed">>;

export interface LocalChatOptions {
  readonly engine: EnginePort;
  readonly tokenizer: Tokenizer;
  readonly renderer: Renderer;
  /** Ids that end an answer. */
  readonly stopTokens: ReadonlySet<number>;
  /** Sessions kept resident. */
  readonly sessionsMax: number;
  readonly sampling: SamplingDefaults;
  /** Default: "suffix". */
  readonly reuse?: Reuse;
  /** Default: "none". */
  readonly repair?: Repair;
  /** Whether tokens are proposed from the conversation's own text. Default: no. */
  readonly lookup?: boolean;
  /** Seconds an idle session lives. Default: until there is no room. */
  readonly ttlSeconds?: number;
  /** Sessions whose version before the last edit is kept, as long as there is room. Default: 4. */
  readonly undoMax?: number;
  /** Cells of sessions that had to go, in a folder of this model and process alone. Default: none. */
  readonly disk?: { readonly folder: string; readonly bytes: number };
  /** Whether relocated cells are recomputed while nobody waits. Default: no. */
  readonly idleRepair?: boolean;
  /** Milliseconds of quiet before idle repair begins. Default: 50. */
  readonly idleDelayMs?: number;
  /** What went wrong without harm, a line each. Default: it is not told. */
  readonly log?: (line: string) => void;
}

export interface RenderOptions {
  readonly addGenerationPrompt?: boolean;
  /** Whose answers are rendered with the ids they were spoken with. */
  readonly tenant?: string | undefined;
}

/** A step for idle repair: as long as a request that comes in between waits. */
const idleTokens = 128;
/** Sessions that outlived their time are looked for at least so often, in milliseconds. */
const maxSweep = 60_000;

export class LocalChat implements Chat {
  readonly #sessions: Sessions;
  readonly #spoken = new AnswerTokenCache();
  readonly #grammars: Grammars;
  #noCall: NoToolCallMask | undefined;
  readonly #sweeper: NodeJS.Timeout | undefined;

  constructor(private readonly options: LocalChatOptions) {
    const { engine, disk, idleRepair, idleDelayMs = 50, ttlSeconds, log = () => undefined } = options;
    this.#grammars = new Grammars(options.tokenizer, options.stopTokens);
    const ttlMs = ttlSeconds === undefined ? undefined : ttlSeconds * 1000;
    this.#sessions = new Sessions(engine, {
      max: options.sessionsMax,
      ttlMs,
      undoMax: options.undoMax ?? 4,
      disk: disk && DiskTier.open({ ...disk, log }),
      idle: idleRepair ? { delayMs: idleDelayMs, tokens: idleTokens } : undefined,
      log,
    });
    if (ttlMs === undefined) return;
    this.#sweeper = setInterval(() => this.#sessions.sweep(), Math.min(ttlMs, maxSweep)).unref();
  }

  /** Ends idle repair and releases all sessions, to disk where there is one. Before the engine is closed. */
  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    this.#grammars.close();
    await this.#sessions.close();
  }

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { tools = [], tenant } = request;
    const { spans } = this.#render(request.messages, tools, { tenant });
    const { grammar, warnings } = await constrain(this.#grammars, request);
    const constraint = grammar ?? (request.toolChoice === "none" ? this.#wording() : undefined);
    try {
      const events = this.#answer(spans, request, { tools: callOptions(request), constraint });
      for await (const event of events)
        yield event.type === "answer-finished" && warnings.length > 0 ? { ...event, warnings } : event;
    } finally {
      constraint?.dispose();
    }
  }

  #wording(): TokenConstraint {
    this.#noCall ??= new NoToolCallMask(this.options.tokenizer);
    return this.#noCall.start();
  }

  /** A text prompt may spell control tokens (that is how fill-in-the-middle is asked for). Throws BAD_REQUEST. */
  async *complete(request: CompletionRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { prompt } = request;
    const tokens =
      typeof prompt === "string"
        ? this.tokenize(prompt, { addSpecial: true })
        : this.#checked(prompt, "prompt");
    if (tokens.length === 0) throw new PocketError("BAD_REQUEST", "The prompt is empty.", "prompt");
    yield* this.#answer([spanOf("template", Int32Array.from(tokens))], request);
  }

  /** Added tokens in the text become their ids; `addSpecial` puts the model's first token in front, if it has one. */
  tokenize(text: string, { addSpecial = false }: { readonly addSpecial?: boolean } = {}): number[] {
    const { tokenizer } = this.options;
    const ids = Array.from(tokenizer.encodeTemplate(text));
    return addSpecial && tokenizer.bos !== undefined ? [tokenizer.bos, ...ids] : ids;
  }

  /** Throws BAD_REQUEST for an id that the vocabulary does not have. */
  detokenize(ids: readonly number[]): string {
    return this.options.tokenizer.decode(this.#checked(ids, "tokens"));
  }

  /** The prompt that `chat` would compute for these messages. Throws BAD_TEMPLATE. */
  applyTemplate(
    messages: readonly Message[],
    tools: readonly Tool[] = [],
    { addGenerationPrompt = true, tenant }: RenderOptions = {},
  ): { readonly text: string; readonly tokens: number[] } {
    const { text, spans } = this.#render(messages, tools, { tenant, addGenerationPrompt });
    return { text, tokens: spans.flatMap(({ tokens }) => Array.from(tokens)) };
  }

  /** Resident sessions of the tenant. */
  list(tenant?: string): SessionInfo[] {
    return this.#sessions.list(tenant);
  }

  /** The cells of one session, for a map. Throws SESSION_NOT_FOUND, also for one of another tenant. */
  inspect(id: string, tenant?: string): SessionMap {
    return this.#sessions.inspect(id, tenant);
  }

  /** Over all tenants. */
  stats(): SessionStats {
    return this.#sessions.stats();
  }

  /** Ends a job under way with CANCELLED; deletes its file too. Throws SESSION_NOT_FOUND as `inspect` does. */
  delete(id: string, tenant?: string): void {
    this.#sessions.delete(id, tenant);
  }

  /** Answers given here stand in the prompt as they were written, word for word and id for id. */
  #render(messages: readonly Message[], tools: readonly Tool[], options: RenderOptions): Prompt {
    const { tenant, addGenerationPrompt = true } = options;
    const written = messages.map((message) => this.#spoken.originalMessage(message, tenant));
    const answerTokens = (text: string) => this.#spoken.idsOf(text, tenant);
    return this.options.renderer.render(written, tools, { answerTokens, addGenerationPrompt });
  }

  async *#answer(
    wanted: readonly Span[],
    options: AnswerOptions,
    {
      tools,
      constraint,
    }: {
      readonly tools?: ToolCallOptions | undefined;
      readonly constraint?: TokenConstraint | undefined;
    } = {},
  ): AsyncGenerator<ChatEvent, void, undefined> {
    const { engine, stopTokens, tokenizer } = this.options;
    if (options.fork && options.forget) {
      throw new PocketError(
        "BAD_REQUEST",
        "A fork forgets nothing: send either fork or forget.",
        "pocket.fork",
      );
    }
    const maxTokens = answerLength(engine, lengthOf(wanted), options.maxTokens);
    const reply = new Reply({
      sessions: this.#sessions,
      answerTokens: this.#spoken,
      engine,
      output: new OutputProcessor(tokenizer, {
        stop: options.stop ?? [],
        logprobs: options.topLogprobs !== undefined,
        tools,
      }),
      checkout: {
        wanted,
        tokens: tokensOf(wanted),
        name: options.session,
        tenant: options.tenant,
        forget: options.forget,
        fork: options.fork,
        reuse: options.reuse ?? this.options.reuse ?? "suffix",
        repair: options.repair ?? this.options.repair ?? "none",
      },
      generation: {
        sampling: this.#sampling(options),
        maxTokens,
        stopTokens,
        top: options.topLogprobs ?? 0,
        logprobs: options.topLogprobs !== undefined,
        lookup: options.lookup ?? this.options.lookup ?? false,
        ...(constraint && { constraint }),
      },
      signal: options.signal,
    });
    yield* reply.events();
  }

  #sampling(options: AnswerOptions): JobSampling {
    const defaults = this.options.sampling;
    return {
      temperature: options.temperature ?? defaults.temperature,
      topK: options.topK ?? defaults.topK,
      topP: options.topP ?? defaults.topP,
      minP: options.minP ?? defaults.minP,
      repetitionPenalty: options.repetitionPenalty ?? defaults.repetitionPenalty,
      frequencyPenalty: options.frequencyPenalty ?? defaults.frequencyPenalty,
      presencePenalty: options.presencePenalty ?? defaults.presencePenalty,
      seed: options.seed ?? Math.floor(Math.random() * 2 ** 48),
    };
  }

  #checked(ids: readonly number[], field: string): readonly number[] {
    const { size } = this.options.tokenizer;
    const place = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= size);
    if (place < 0) return ids;
    throw new PocketError(
      "BAD_REQUEST",
      `Token id ${ids[place]} is not in the vocabulary, whose ids are 0 to ${size - 1}.`,
      `${field}.${place}`,
    );
  }
}

/** Without tools nothing in an answer is a call. */
function callOptions({
  tools = [],
  toolChoice,
  callable,
  parallelToolCalls,
  format,
}: ChatRequest): ToolCallOptions | undefined {
  if (tools.length === 0 || toolChoice === "none") return undefined;
  const once = parallelToolCalls === false || typeof toolChoice === "object";
  const names = (callable ?? tools).map(({ name }) => name);
  // JSON that was asked for may look like a call.
  const taggedOnly = tools.filter(({ strict }) => strict || format).map(({ name }) => name);
  return { names, taggedOnly, ...(once && { maxCalls: 1 }) };
}
