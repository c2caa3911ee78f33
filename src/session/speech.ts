// The way up for one answer's tokens: ids become text, stop strings cut it, log-probabilities travel with the
// text they belong to. It also remembers which ids the text was spoken with. It knows neither sessions nor the
// engine's loop.
import type { ChatEvent, TokenLogprob } from "../context/chat.ts";
import type { Generated } from "../engine/job.ts";
import { Decoder } from "../text/decoder.ts";
import { StopStrings } from "../text/stop.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Spoken } from "./spoken.ts";

export type TextDelta = Extract<ChatEvent, { type: "text-delta" }>;
type Logprob = NonNullable<TextDelta["logprobs"]>[number];

/** Characters of decoded text, held back or not, in front of a token and behind it. */
interface Uttered {
  readonly id: number;
  readonly start: number;
  readonly end: number;
  readonly logprob: Logprob | undefined;
}

export class Speech {
  readonly #decoder: Decoder;
  readonly #stops: StopStrings;
  readonly #uttered: Uttered[] = [];
  #decoded = 0;
  #text = "";
  /** Of `#uttered`, how many logprobs have gone out. */
  #reported = 0;

  constructor(
    private readonly tokenizer: Tokenizer,
    stops: readonly string[],
    /** Whether deltas carry logprobs. */
    private readonly logprobs: boolean,
  ) {
    this.#decoder = new Decoder(tokenizer);
    this.#stops = new StopStrings(stops);
  }

  /** A stop string was met: nothing more will come. */
  get stopped(): boolean {
    return this.#stops.stopped;
  }

  /** What goes up now; undefined: nothing yet. */
  push(generated: Generated): TextDelta | undefined {
    const start = this.#decoded;
    const text = this.#decoder.push(generated.token);
    this.#decoded += text.length;
    const logprob = this.logprobs ? this.#logprob(generated) : undefined;
    this.#uttered.push({ id: generated.token, start, end: this.#decoded, logprob });
    return this.#release(this.#stops.push(text));
  }

  /** What was held back, when the answer has ended. */
  flush(): TextDelta | undefined {
    const rest = this.#stops.push(this.#decoder.flush()) + this.#stops.flush();
    const delta = this.#release(rest);
    return delta;
  }

  /** Records the ids of the text that went up, where they spell exactly that text. */
  remember(spoken: Spoken, tenant: string | undefined): void {
    const count = this.#uttered.findLastIndex(({ end }) => end <= this.#text.length) + 1;
    const ids = this.#uttered.slice(0, count).map(({ id }) => id);
    if (this.tokenizer.decode(ids) === this.#text) spoken.record(this.#text, ids, tenant);
  }

  #release(text: string): TextDelta | undefined {
    this.#text += text;
    const logprobs: Logprob[] = [];
    while (this.#reported < this.#uttered.length) {
      const { end, logprob } = this.#uttered[this.#reported]!;
      if (end > this.#text.length) break;
      if (logprob) logprobs.push(logprob);
      this.#reported++;
    }
    if (text === "" && logprobs.length === 0) return undefined;
    return { type: "text-delta", text, ...(this.logprobs ? { logprobs } : {}) };
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
