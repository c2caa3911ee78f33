// The way up for one answer's tokens: ids become text, stop strings cut it, tool calls are told from content, and
// log-probabilities travel with the text they belong to. It also remembers which ids the text was spoken with.
// It knows neither sessions nor the engine's loop.
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
  /** Whether deltas carry logprobs; those of tool calls have none. */
  readonly logprobs: boolean;
  /** Absent: nothing in the text is a call. */
  readonly tools?: ToolCallOptions | undefined;
}

/** Characters of decoded text, held back or not, in front of a token and behind it. */
interface Uttered {
  readonly id: number;
  readonly start: number;
  readonly end: number;
  readonly logprob: Logprob | undefined;
}

export class OutputProcessor {
  readonly #decoder: Detokenizer;
  readonly #stops: StopStrings;
  readonly #calls: ToolCalls | undefined;
  readonly #uttered: Uttered[] = [];
  readonly #ids: string[] = [];
  readonly #complete: ToolCall[] = [];
  #decoded = 0;
  /** In front of the stop string, calls included. */
  #text = "";
  #content = "";
  /** Of `#uttered`, how many logprobs have gone out. */
  #reported = 0;

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly options: OutputOptions,
  ) {
    this.#decoder = new Detokenizer(tokenizer);
    this.#stops = new StopStrings(options.stop);
    this.#calls = options.tools && new ToolCalls(options.tools);
  }

  /** A stop string was met, or the one call that is wanted is there: nothing more will come. */
  get stopped(): boolean {
    return this.#stops.stopped || (this.#calls?.full ?? false);
  }

  /** Whether there are complete calls; and whether the last one breaks off, once the answer has ended. */
  get calls(): "none" | "complete" | "broken" {
    if (this.#calls?.broken) return "broken";
    return this.#complete.length > 0 ? "complete" : "none";
  }

  /** What goes up now. */
  push(generated: Generated): ChatEvent[] {
    const start = this.#decoded;
    const text = this.#decoder.push(generated.token);
    this.#decoded += text.length;
    const logprob = this.options.logprobs ? this.#logprob(generated) : undefined;
    this.#uttered.push({ id: generated.token, start, end: this.#decoded, logprob });
    return this.#release(this.#stops.push(text));
  }

  /** What was held back, when the answer has ended. */
  flush(): ChatEvent[] {
    const rest = this.#stops.push(this.#decoder.flush()) + this.#stops.flush();
    const events = this.#release(rest);
    return this.#calls ? [...events, ...this.#calls.flush().flatMap((part) => this.#event(part))] : events;
  }

  /** Records the ids of the text that went up, where they spell exactly that text. */
  remember(spoken: AnswerTokenCache, tenant: string | undefined): void {
    const count = this.#uttered.findLastIndex(({ end }) => end <= this.#text.length) + 1;
    const ids = this.#uttered.slice(0, count).map(({ id }) => id);
    if (this.tokenizer.decode(ids) !== this.#text) return;
    spoken.record(this.#text, ids, tenant);
    if (this.calls === "complete") {
      spoken.recordCalls(this.#content, this.#complete, this.#text, tenant);
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
      // Unique in the conversation, which may come back to another server.
      const id = `call_${randomBytes(12).toString("hex")}`;
      this.#ids.push(id);
      return [{ type: "tool-call-start", index, id, name }];
    }
    const call = { id: this.#ids[index]!, name, arguments: part.arguments };
    this.#complete.push(call);
    return [{ type: "tool-call", call }];
  }

  /** Content that stands at [start, end) of the text, with the logprobs of the tokens that end in it. */
  #delta(text: string, start: number, end: number): TextDelta[] {
    const logprobs: Logprob[] = [];
    for (; this.#reported < this.#uttered.length; this.#reported++) {
      const token = this.#uttered[this.#reported]!;
      if (token.end > end) break;
      const inside = token.end > start || (token.start === token.end && token.start >= start);
      if (token.logprob && inside) logprobs.push(token.logprob);
    }
    if (text === "" && logprobs.length === 0) return [];
    return [{ type: "text-delta", text, ...(this.options.logprobs ? { logprobs } : {}) }];
  }

  #logprob({ token, logprob, top }: Generated): Logprob {
    return {
      ...this.#named(token, logprob),
      top: top.map((alternative) => this.#named(alternative.token, alternative.logprob)),
    };
  }

  /** A token that is no whole character shows U+FFFD in its text; `bytes` are exact. */
  #named(token: number, logprob: number): TokenLogprob {
    return {
      token: this.tokenizer.decode([token]),
      bytes: Array.from(this.tokenizer.bytesOf(token)),
      logprob,
    };
  }
}
