// The Chat port on the local engine. Renders a request to spans, checks out a session, plans its edit, runs the job and
// emits events. It knows nothing about HTTP and nothing about how a conversation is compacted.
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
  /** Resident sessions. */
  readonly sessionsMax: number;
  readonly sampling: SamplingDefaults;
  /** Default: "suffix". */
  readonly reuse?: Reuse;
  /** Default: "none". */
  readonly repair?: Repair;
  /** Whether draft tokens are taken from the conversation's own text (prompt lookup). Default: no. */
  readonly lookup?: boolean;
  /** Seconds that an idle session lives. Default: until it is evicted. */
  readonly ttlSeconds?: number;
  /** Sessions whose version before the last edit is kept until it is evicted. Default: 4. */
  readonly undoMax?: number;
  /** Disk tier for evicted sessions; the folder belongs to this model and process alone. Default: none. */
  readonly disk?: { readonly folder: string; readonly bytes: number };
  /** Whether relocated cells are recomputed while the engine is idle. Default: no. */
  readonly idleRepair?: boolean;
  /** Milliseconds without a request before idle repair begins. Default: 50. */
  readonly idleDelayMs?: number;
  /** Receives one line per failure that was handled. Default: none are logged. */
  readonly log?: (line: string) => void;
}

export interface RenderOptions {
  readonly addGenerationPrompt?: boolean;
  /** Answers of this tenant are rendered with the ids that they were generated with. */
  readonly tenant?: string | undefined;
}

/** Tokens per piece of idle repair. A request that arrives meanwhile waits for one piece at most. */
const idleTokens = 128;
/** Longest interval between two checks for expired sessions, in milliseconds. */
const maxExpiryInterval = 60_000;

export class LocalChat implements Chat {
  readonly #sessions: Sessions;
  readonly #answerTokens = new AnswerTokenCache();
  readonly #grammars: Grammars;
  #noToolCallMask: NoToolCallMask | undefined;
  readonly #expiryTimer: NodeJS.Timeout | undefined;

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
    this.#expiryTimer = setInterval(
      () => this.#sessions.expire(),
      Math.min(ttlMs, maxExpiryInterval),
    ).unref();
  }

  /** Ends idle repair and releases all sessions, writing them to disk if there is a disk tier. Call it before the engine is closed. */
  async close(): Promise<void> {
    clearInterval(this.#expiryTimer);
    this.#grammars.close();
    await this.#sessions.close();
  }

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { tools = [], tenant } = request;
    const { spans } = this.#render(request.messages, tools, { tenant });
    const { grammar, warnings } = await constrain(this.#grammars, request);
    const constraint = grammar ?? (request.toolChoice === "none" ? this.#withoutToolCalls() : undefined);
    try {
      const events = this.#answer(spans, request, { tools: callOptions(request), constraint });
      for await (const event of events)
        yield event.type === "answer-finished" && warnings.length > 0 ? { ...event, warnings } : event;
    } finally {
      constraint?.dispose();
    }
  }

  #withoutToolCalls(): TokenConstraint {
    this.#noToolCallMask ??= new NoToolCallMask(this.options.tokenizer);
    return this.#noToolCallMask.start();
  }

  /** Control tokens in a text prompt are encoded as such, as fill-in-the-middle needs. Throws BAD_REQUEST. */
  async *complete(request: CompletionRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { prompt } = request;
    const tokens =
      typeof prompt === "string"
        ? this.tokenize(prompt, { addSpecial: true })
        : this.#checked(prompt, "prompt");
    if (tokens.length === 0) throw new PocketError("BAD_REQUEST", "The prompt is empty.", "prompt");
    yield* this.#answer([spanOf("template", Int32Array.from(tokens))], request);
  }

  /** Added tokens in the text become their ids. `addSpecial` prepends the model's first token, if it has one. */
  tokenize(text: string, { addSpecial = false }: { readonly addSpecial?: boolean } = {}): number[] {
    const { tokenizer } = this.options;
    const ids = Array.from(tokenizer.encodeTemplate(text));
    return addSpecial && tokenizer.bos !== undefined ? [tokenizer.bos, ...ids] : ids;
  }

  /** Throws BAD_REQUEST for an id that is not in the vocabulary. */
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

  /** Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  inspect(id: string, tenant?: string): SessionMap {
    return this.#sessions.inspect(id, tenant);
  }

  /** Over all tenants. */
  stats(): SessionStats {
    return this.#sessions.stats();
  }

  /** Ends a running job with CANCELLED and deletes the session's file. Throws SESSION_NOT_FOUND as `inspect` does. */
  delete(id: string, tenant?: string): void {
    this.#sessions.delete(id, tenant);
  }

  /** Renders cached answers with the text and the ids that the model generated. */
  #render(messages: readonly Message[], tools: readonly Tool[], options: RenderOptions): Prompt {
    const { tenant, addGenerationPrompt = true } = options;
    const original = messages.map((message) => this.#answerTokens.originalMessage(message, tenant));
    const answerTokens = (text: string) => this.#answerTokens.idsOf(text, tenant);
    return this.options.renderer.render(original, tools, { answerTokens, addGenerationPrompt });
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
      answerTokens: this.#answerTokens,
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
    const index = ids.findIndex((id) => !Number.isInteger(id) || id < 0 || id >= size);
    if (index < 0) return ids;
    throw new PocketError(
      "BAD_REQUEST",
      `Token id ${ids[index]} is not in the vocabulary, whose ids are 0 to ${size - 1}.`,
      `${field}.${index}`,
    );
  }
}

/** Undefined: the answer is not parsed for calls. */
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
  // An answer in a requested JSON format may look like a call of these tools; only tagged calls count then.
  const taggedOnly = tools.filter(({ strict }) => strict || format).map(({ name }) => name);
  return { names, taggedOnly, ...(once && { maxCalls: 1 }) };
}
