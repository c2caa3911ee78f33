// One conversation: the spans that are resident and the sequence that holds their cells, kept in step. It says
// what is resident now, also after a job that was cut short. Which session serves a request is not decided here.
import type { SequencePort } from "../engine/job.ts";
import { lengthOf, type Span, spanOf, truncate } from "../text/span.ts";
import type { Plan } from "./diff.ts";

/** How a job ended, as far as cells are concerned. */
export interface JobEnd {
  /** Every token the engine reported, in order. */
  readonly generated: readonly number[];
  /** Whether the edit was applied; "unknown" where a job ended early without saying. */
  readonly edited: "yes" | "no" | "unknown";
}

export class Session {
  /** Resident tokens by span: exactly the sequence's cells while idle, the wanted prompt while busy. */
  #spans: readonly Span[];
  #spansBefore: readonly Span[] = [];
  #plan: Plan | undefined;
  #usedAt = Date.now();
  /** Aborts the job under way. */
  #abort: (() => void) | undefined;
  #applied = false;
  /** Busy, but waiting for room in the pool. */
  waiting = false;

  constructor(
    readonly id: string,
    /** Named by a client: served only to requests that name it. */
    readonly named: boolean,
    private held: SequencePort,
    spans: readonly Span[] = [],
  ) {
    this.#spans = spans;
  }

  get sequence(): SequencePort {
    return this.held;
  }

  get spans(): readonly Span[] {
    return this.#spans;
  }

  get busy(): boolean {
    return this.#plan !== undefined;
  }

  /** Milliseconds since the epoch. */
  get usedAt(): number {
    return this.#usedAt;
  }

  /** Leading cells that equal a cold prefill and have keys: what another session may share. */
  get exactLength(): number {
    if (!this.#plan) return this.held.exactLength;
    // Until the edit is known to be applied, only what it leaves alone is certain.
    const exact = this.#applied ? this.#plan.exactLength : Math.min(this.#plan.kept, this.held.exactLength);
    return Math.min(exact, this.held.length);
  }

  /** The engine has computed the whole prompt. */
  applied(): void {
    this.#applied = true;
  }

  /** From here to `end` the session is busy. `abort` ends the job early. */
  begin(wanted: readonly Span[], plan: Plan, abort: () => void): void {
    this.#spansBefore = this.#spans;
    this.#spans = wanted;
    this.#plan = plan;
    this.#abort = abort;
    this.#applied = false;
    this.#usedAt = Date.now();
  }

  /** Puts the resident spans in step with the sequence. False: they cannot be, and the session is of no more use. */
  end({ generated, edited }: JobEnd): boolean {
    const lengthBefore = lengthOf(this.#spansBefore);
    const kept = this.#plan?.kept ?? 0;
    this.#plan = undefined;
    this.#abort = undefined;
    this.waiting = false;
    this.#usedAt = Date.now();
    if (this.held.released) return false;
    const { length } = this.held;
    if (edited === "no") {
      this.#spans = this.#spansBefore;
    } else if (edited === "yes" || length !== lengthBefore || kept === lengthBefore) {
      this.#spans = truncate(withAnswer(this.#spans, generated), length);
    } else {
      // The length does not tell the old tokens from the new ones: only what both share is certain, and
      // tokens that equal none stand for the rest until the next edit cuts them.
      const unknown = new Int32Array(length - Math.min(kept, length)).fill(-1);
      this.#spans = [...truncate(this.#spans, kept), spanOf("template", unknown)];
    }
    return lengthOf(this.#spans) === length;
  }

  /** A cold start: other cells, none of them filled yet. `plan` is the one for an empty sequence. */
  restart(sequence: SequencePort, plan: Plan): void {
    this.held.release();
    this.held = sequence;
    this.#spansBefore = [];
    this.#plan = plan;
  }

  /** Ends the job, if there is one, and gives the cells back. */
  release(): void {
    this.#abort?.();
    this.held.release();
  }
}

/** The generation prompt and what was said after it are the assistant's message. */
function withAnswer(spans: readonly Span[], generated: readonly number[]): Span[] {
  const last = spans.at(-1);
  if (!last || generated.length === 0) return [...spans];
  const tokens = new Int32Array(last.tokens.length + generated.length);
  tokens.set(last.tokens);
  tokens.set(generated, last.tokens.length);
  const role = last.role === "template" ? "assistant" : last.role;
  return [...spans.slice(0, -1), spanOf(role, tokens)];
}
