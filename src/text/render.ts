// Renders messages to spans: the prompt as tokens, one span per message and one for the generation prompt. The plain
// text between two control tokens is encoded as one string, template and content together, so the ids equal the usual
// encoding of the whole prompt; content never yields a control token. An answer of this server is rendered as the ids
// that were sampled for it. Encodings are cached by text, since every request repeats the conversation.
import type { Message, Tool } from "../chat/chat.ts";
import { Lru } from "./lru.ts";
import { concatenate, type Span, spanOf } from "./span.ts";
import { type Fragment, type SpanFragments, splitIntoSpans } from "./span-boundaries.ts";
import type { ChatTemplate } from "./template.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The ids that were sampled for an answer, by its exact text; undefined for any other text. */
export type AnswerTokens = (text: string) => Int32Array | undefined;

export interface Prompt {
  readonly text: string;
  /** Their tokens, concatenated, are the prompt. No span is empty. */
  readonly spans: readonly Span[];
}

export interface RenderOptions {
  readonly answerTokens?: AnswerTokens;
  /** Default: true. */
  readonly addGenerationPrompt?: boolean;
}

/** Total length of the cached texts in characters; their ids take about one byte per character. */
const cachedCharacters = 16 * 1024 * 1024;

export class Renderer {
  readonly #encodings = new Lru<Int32Array>(cachedCharacters);

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly template: ChatTemplate,
    /** Ids that end a turn. */
    private readonly stopTokens: ReadonlySet<number>,
  ) {}

  /** Throws BAD_TEMPLATE if the template refuses the messages. */
  render(messages: readonly Message[], tools: readonly Tool[], options: RenderOptions = {}): Prompt {
    const { addGenerationPrompt = true, answerTokens } = options;
    const { text, pieces } = this.template.render(messages, tools, addGenerationPrompt);
    const parts = splitIntoSpans(
      pieces,
      messages.length,
      this.tokenizer,
      this.stopTokens,
      addGenerationPrompt,
    );
    const spans = parts.map((part) => this.#span(part, messages, answerTokens));
    return { text, spans: spans.filter(({ tokens }) => tokens.length > 0) };
  }

  #span(
    { message, fragments }: SpanFragments,
    messages: readonly Message[],
    answerTokens: AnswerTokens | undefined,
  ): Span {
    const role = message === undefined ? "template" : messages[message]!.role;
    const sampledIds = (fragment: Fragment) =>
      role === "assistant" && fragment.kind === "text" && fragment.message === message
        ? answerTokens?.(fragment.text)
        : undefined;
    const parts: Int32Array[] = [];
    let plain = "";
    const flush = () => {
      if (plain !== "") parts.push(this.#encode(plain));
      plain = "";
    };
    for (const fragment of fragments) {
      const ids = sampledIds(fragment);
      if (fragment.kind === "text" && !ids) {
        plain += fragment.text;
        continue;
      }
      flush();
      parts.push(ids ?? Int32Array.of((fragment as Fragment & { kind: "control" }).id));
    }
    flush();
    return spanOf(role, concatenate(parts));
  }

  #encode(text: string): Int32Array {
    const known = this.#encodings.get(text);
    if (known) return known;
    const ids = this.tokenizer.encodeContent(text);
    this.#encodings.set(text, ids, text.length);
    return ids;
  }
}
