// Turns the tokens of one answer into chat events: decodes ids, applies stop strings, separates tool calls from
// content, and attaches log-probabilities to the text. Records the ids of the text for the answer token cache.
import { randomBytes } from "node:crypto";
import type { ChatEvent, TokenLogprob, ToolCall } from "../../chat/chat.ts";
import type { Generated } from "../../engine/job.ts";
import { Detokenizer } from "../../text/detokenizer.ts";
import { StopStrings } from "../../text/stop-strings.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { type AnswerPart, type ToolCallOptions, ToolCalls } from "../../text/tool-calls.ts";
import type { AnswerTokenCache } from "./answer-token-cache.ts";

export type TextDelta = Extract<ChatEvent, { type: "text-delta" }>;
type Logprob = NonNullable<TextDelta["logprobs"]>[number];

export interface OutputOptions {
  readonly stop: readonly string[];
  /** Whether text deltas carry logprobs. Tool calls have none. */
  readonly logprobs: boolean;
  /** Absent: no text is parsed as a call. */
  readonly tools?: ToolCallOptions | undefined;
}

/** A token and its text, as offsets in the decoded text. */
interface DecodedToken {
  readonly id: number;
  readonly start: number;
  readonly end: number;
  readonly logprob: Logprob | undefined;
}

export class OutputProcessor {
  readonly #detokenizer: Detokenizer;
  readonly #stops: StopStrings;
  readonly #calls: ToolCalls | undefined;
  readonly #tokens: DecodedToken[] = [];
  readonly #callIds: string[] = [];
  readonly #completeCalls: ToolCall[] = [];
  /** Characters of decoded text, including text that is held back. */
  #decoded = 0;
  /** Released text up to the stop string, calls included. */
  #text = "";
  #content = "";
  /** Tokens whose logprobs have been emitted. */
  #reported = 0;

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly options: OutputOptions,
  ) {
    this.#detokenizer = new Detokenizer(tokenizer);
    this.#stops = new StopStrings(options.stop);
    this.#calls = options.tools && new ToolCalls(options.tools);
  }

  /** A stop string occurred, or the only wanted call is complete: nothing more will be emitted. */
  get stopped(): boolean {
    return this.#stops.stopped || (this.#calls?.full ?? false);
  }

  /** Whether there are complete calls, and, once the answer has ended, whether the last one is incomplete. */
  get calls(): "none" | "complete" | "broken" {
    if (this.#calls?.broken) return "broken";
    return this.#completeCalls.length > 0 ? "complete" : "none";
  }

  /** Returns the events that can be emitted now. */
  push(generated: Generated): ChatEvent[] {
    const start = this.#decoded;
    const text = this.#detokenizer.push(generated.token);
    this.#decoded += text.length;
    const logprob = this.options.logprobs ? this.#logprob(generated) : undefined;
    this.#tokens.push({ id: generated.token, start, end: this.#decoded, logprob });
    return this.#release(this.#stops.push(text));
  }

  /** Returns the events that were held back. Call it when the answer has ended. */
  flush(): ChatEvent[] {
    const rest = this.#stops.push(this.#detokenizer.flush()) + this.#stops.flush();
    const events = this.#release(rest);
    return this.#calls ? [...events, ...this.#calls.flush().flatMap((part) => this.#event(part))] : events;
  }

  /** Records the ids of the released text, if they decode to exactly that text. */
  recordTokens(cache: AnswerTokenCache, tenant: string | undefined): void {
    const count = this.#tokens.findLastIndex(({ end }) => end <= this.#text.length) + 1;
    const ids = this.#tokens.slice(0, count).map(({ id }) => id);
    if (this.tokenizer.decode(ids) !== this.#text) return;
    cache.record(this.#text, ids, tenant);
    if (this.calls === "complete") {
      cache.recordCalls(this.#content, this.#completeCalls, this.#text, tenant);
    }
  }

  #release(text: string): ChatEvent[] {
    const start = this.#text.length;
    this.#text += text;
    if (this.#calls) return this.#calls.push(text).flatMap((part) => this.#event(part));
    return this.#delta(text, start, this.#text.length);
  }

  #event(part: AnswerPart): ChatEvent[] {
    if (part.kind === "text") {
      this.#content += part.text;
      return this.#delta(part.text, part.start, part.end);
    }
    if (part.kind === "call-delta") {
      return [{ type: "tool-call-delta", index: part.index, arguments: part.arguments }];
    }
    const { index, name } = part;
    if (part.kind === "call-start") {
      // Random, because the conversation may continue on another server.
      const id = `call_${randomBytes(12).toString("hex")}`;
      this.#callIds.push(id);
      return [{ type: "tool-call-start", index, id, name }];
    }
    const call = { id: this.#callIds[index]!, name, arguments: part.arguments };
    this.#completeCalls.push(call);
    return [{ type: "tool-call", call }];
  }

  /** Content at [start, end) of the text, with the logprobs of the tokens that end in it. */
  #delta(text: string, start: number, end: number): TextDelta[] {
    const logprobs: Logprob[] = [];
    for (; this.#reported < this.#tokens.length; this.#reported++) {
      const token = this.#tokens[this.#reported]!;
      if (token.end > end) break;
      const inside = token.end > start || (token.start === token.end && token.start >= start);
      if (token.logprob && inside) logprobs.push(token.logprob);
    }
    if (text === "" && logprobs.length === 0) return [];
    return [{ type: "text-delta", text, ...(this.options.logprobs ? { logprobs } : {}) }];
  }

  #logprob({ token, logprob, top }: Generated): Logprob {
    return {
      ...this.#tokenLogprob(token, logprob),
      top: top.map((alternative) => this.#tokenLogprob(alternative.token, alternative.logprob)),
    };
  }

  /** The text of a token that is part of a character is U+FFFD; `bytes` are exact. */
  #tokenLogprob(token: number, logprob: number): TokenLogprob {
    return {
      token: this.tokenizer.decode([token]),
      bytes: Array.from(this.tokenizer.bytesOf(token)),
      logprob,
    };
  }
}
