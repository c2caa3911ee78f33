// Messages to spans: the prompt as tokens, one span per message, and one for the generation prompt. Plain text
// between two control tokens is encoded in one go, template and content together, so the ids are those of
// the usual encoding of the whole prompt; but text from outside never yields a control token. Answers given
// here come back as the ids they were spoken with. Encodings are kept by text, as chats repeat themselves.
import type { Message, Tool } from "../chat/chat.ts";
import { Lru } from "./lru.ts";
import { type Span, spanOf } from "./span.ts";
import type { Fragment, SpanFragments } from "./span-boundaries.ts";
import { splitIntoSpans } from "./span-boundaries.ts";
import type { ChatTemplate } from "./template.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The ids an answer was generated with, by its exact text. */
export type AnswerTokens = (text: string) => Int32Array | undefined;

export interface Prompt {
  readonly text: string;
  /** Their tokens joined are the prompt. No span is empty. */
  readonly spans: readonly Span[];
}

export interface RenderOptions {
  readonly answerTokens?: AnswerTokens;
  readonly addGenerationPrompt?: boolean;
}

/** Characters of text whose encodings are kept; ids take about as many bytes as the text has characters. */
const cachedCharacters = 16 * 1024 * 1024;

export class Renderer {
  readonly #encodings = new Lru<Int32Array>(cachedCharacters);

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly template: ChatTemplate,
    /** Ids that end a turn. */
    private readonly stopTokens: ReadonlySet<number>,
  ) {}

  /** Throws BAD_TEMPLATE. */
  render(messages: readonly Message[], tools: readonly Tool[], options: RenderOptions = {}): Prompt {
    const { addGenerationPrompt = true, answerTokens } = options;
    const { text, pieces } = this.template.render(messages, tools, addGenerationPrompt);
    const portions = splitIntoSpans(
      pieces,
      messages.length,
      this.tokenizer,
      this.stopTokens,
      addGenerationPrompt,
    );
    const spans = portions.map((portion) => this.#span(portion, messages, answerTokens));
    return { text, spans: spans.filter(({ tokens }) => tokens.length > 0) };
  }

  #span(
    { message, atoms }: SpanFragments,
    messages: readonly Message[],
    spoken: AnswerTokens | undefined,
  ): Span {
    const role = message === undefined ? "template" : messages[message]!.role;
    const parts: Int32Array[] = [];
    let plain = "";
    const flush = () => {
      if (plain !== "") parts.push(this.#encode(plain));
      plain = "";
    };
    for (const atom of atoms) {
      const ids = role === "assistant" ? spokenIds(atom, message, spoken) : undefined;
      if (atom.kind === "text" && !ids) {
        plain += atom.text;
        continue;
      }
      flush();
      parts.push(ids ?? Int32Array.of((atom as Fragment & { kind: "control" }).id));
    }
    flush();
    return spanOf(role, join(parts));
  }

  #encode(text: string): Int32Array {
    const known = this.#encodings.get(text);
    if (known) return known;
    const ids = this.tokenizer.encodeContent(text);
    this.#encodings.set(text, ids, text.length);
    return ids;
  }
}

function spokenIds(
  atom: Fragment,
  message: number | undefined,
  spoken: AnswerTokens | undefined,
): Int32Array | undefined {
  return atom.kind === "text" && atom.message === message ? spoken?.(atom.text) : undefined;
}

function join(parts: readonly Int32Array[]): Int32Array {
  const whole = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
