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
} from "../context/chat.ts";
import type { EnginePort, JobSampling } from "../engine/job.ts";
import { PocketError } from "../errors.ts";
import type { Renderer } from "../text/render.ts";
import { lengthOf, type Span, spanOf } from "../text/span.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { answerLength } from "./limits.ts";
import { Reply } from "./reply.ts";
import { type SessionInfo, Sessions } from "./sessions.ts";
import { Speech } from "./speech.ts";
import { Spoken } from "./spoken.ts";

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
}

export class LocalChat implements Chat {
  readonly #sessions: Sessions;
  readonly #spoken = new Spoken();

  constructor(private readonly options: LocalChatOptions) {
    this.#sessions = new Sessions(options.engine, options.sessionsMax);
  }

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const spoken = (text: string) => this.#spoken.idsOf(text);
    const { spans } = this.options.renderer.render(request.messages, request.tools ?? [], { spoken });
    yield* this.#answer(spans, request);
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
    { addGenerationPrompt = true }: { readonly addGenerationPrompt?: boolean } = {},
  ): { readonly text: string; readonly tokens: number[] } {
    const spoken = (text: string) => this.#spoken.idsOf(text);
    const { text, spans } = this.options.renderer.render(messages, tools, { spoken, addGenerationPrompt });
    return { text, tokens: spans.flatMap(({ tokens }) => Array.from(tokens)) };
  }

  list(): SessionInfo[] {
    return this.#sessions.list();
  }

  /** Ends a job under way with CANCELLED. Throws SESSION_NOT_FOUND. */
  delete(id: string): void {
    this.#sessions.delete(id);
  }

  async *#answer(
    wanted: readonly Span[],
    options: AnswerOptions,
  ): AsyncGenerator<ChatEvent, void, undefined> {
    const { engine, stopTokens, tokenizer } = this.options;
    const maxTokens = answerLength(engine, lengthOf(wanted), options.maxTokens);
    const reply = new Reply({
      sessions: this.#sessions,
      spoken: this.#spoken,
      engine,
      speech: new Speech(tokenizer, options.stop ?? [], options.topLogprobs !== undefined),
      checkout: {
        wanted,
        name: options.session,
        reuse: options.reuse ?? this.options.reuse ?? "suffix",
        repair: options.repair ?? this.options.repair ?? "none",
      },
      generation: {
        sampling: this.#sampling(options),
        maxTokens,
        stopTokens,
        top: options.topLogprobs ?? 0,
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
