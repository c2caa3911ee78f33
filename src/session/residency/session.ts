// One conversation: the spans that are resident and the sequence that holds their cells, kept in step; which
// of the cells are relocated; and, after an edit, the version before it. It says what is resident now, also
// after a job that was cut short. Which session serves a request is not decided here.
import type { SequencePort } from "../../engine/job.ts";
import { type Span, tokensOf } from "../../text/span.ts";
import type { EditPlan } from "../planner/edit-planner.ts";
import { outside, type Range, within } from "../planner/range.ts";
import { type Content, contentAfter } from "./reconcile.ts";

/** How a job ended, as far as cells are concerned. */
export interface JobEnd {
  /** Every token the engine reported, in order. */
  readonly generated: readonly number[];
  /** Whether the edit was applied; "unknown" where a job ended early without saying. */
  readonly edited: "yes" | "no" | "unknown";
}

/** Cells that somebody holds, and what they are. */
export interface Version extends Content {
  readonly sequence: SequencePort;
  /** Leading cells that equal a cold prefill and have keys: what a session may share with another. */
  readonly exactLength: number;
}

export interface SessionName {
  readonly id: string;
  /** Named by a client: served only to requests that name it. */
  readonly named: boolean;
  /** Whose it is; for anybody else it does not exist. */
  readonly tenant: string | undefined;
}

export class Session implements Version, SessionName {
  readonly id: string;
  readonly named: boolean;
  readonly tenant: string | undefined;
  /** The version before the last edit that took something away; shares its pages with this one. */
  previous: Version | undefined;
  /** Cells of spans that edits took out, oldest first; kept apart, for whoever wants those spans again. */
  readonly victims: Version[] = [];
  /** A file on disk holds exactly these cells. */
  saved = false;
  /** Busy, but waiting for room in the pool. */
  waiting = false;
  /** Resident tokens by span: exactly the sequence's cells while idle, the wanted prompt while busy. */
  #spans: readonly Span[];
  #relocated: readonly Range[];
  #before: Content = { spans: [], relocated: [] };
  #plan: EditPlan | undefined;
  #usedAt = Date.now();
  /** Aborts the job under way. */
  #abort: (() => void) | undefined;
  #applied = false;
  #filled: (() => void)[] = [];

  constructor(
    { id, named, tenant }: SessionName,
    private held: SequencePort,
    spans: readonly Span[] = [],
    relocated: readonly Range[] = [],
  ) {
    this.id = id;
    this.named = named;
    this.tenant = tenant;
    this.#spans = spans;
    this.#relocated = relocated;
  }

  get sequence(): SequencePort {
    return this.held;
  }

  get spans(): readonly Span[] {
    return this.#spans;
  }

  get relocated(): readonly Range[] {
    return this.#relocated;
  }

  get busy(): boolean {
    return this.#plan !== undefined;
  }

  /** Milliseconds since the epoch. */
  get usedAt(): number {
    return this.#usedAt;
  }

  get exactLength(): number {
    if (!this.#plan) return this.held.exactLength;
    const { kept, cut, relocated, exactLength } = this.#plan;
    // Until the edit is known to be applied, only what it leaves alone is certain; an append leaves everything.
    const certain = this.#applied || (cut === 0 && relocated === 0);
    const exact = certain ? exactLength : Math.min(kept, this.held.exactLength);
    return Math.min(exact, this.held.length);
  }

  /** Tokens that are exact, or will be once the job under way has filled them. */
  get exactTokens(): Int32Array {
    return tokensOf(this.#spans).slice(0, this.#plan ? this.#plan.exactLength : this.held.exactLength);
  }

  /** The engine has computed the whole prompt. */
  applied(): void {
    this.#applied = true;
    this.#wake();
  }

  /** Its prompt is being computed. */
  get filling(): boolean {
    return this.#plan !== undefined && !this.#applied;
  }

  /** Resolves when the prompt under way is filled, or will not be. */
  filled(): Promise<void> {
    if (!this.filling) return Promise.resolve();
    return new Promise((resolve) => this.#filled.push(resolve));
  }

  /** From here to `end` the session is busy. `abort` ends the job early. */
  begin(wanted: readonly Span[], plan: EditPlan, abort: () => void): void {
    this.#before = { spans: this.#spans, relocated: this.#relocated };
    this.#spans = wanted;
    this.#relocated = plan.relocatedRanges;
    this.#plan = plan;
    this.#abort = abort;
    this.#applied = false;
    this.saved = false;
    this.#usedAt = Date.now();
  }

  /** Puts the resident spans in step with the sequence. False: they cannot be, and the session is of no more use. */
  end({ generated, edited }: JobEnd): boolean {
    const plan = this.#plan;
    this.#plan = undefined;
    this.#abort = undefined;
    this.waiting = false;
    this.#usedAt = Date.now();
    this.#wake();
    if (this.held.released || !plan) return false;
    const ended = { before: this.#before, wanted: this.#spans, plan, generated, refused: edited === "no" };
    const resident = this.held.tokens();
    // A fork that the engine has not made yet tells no tokens: what it holds cannot be checked.
    if (resident.length !== this.held.length) return false;
    const content = contentAfter(ended, resident);
    if (!content) return false;
    this.#spans = content.spans;
    this.#relocated = within(content.relocated, this.held.exactLength, this.held.length);
    return true;
  }

  /** A cold start: other cells, none of them filled yet. `plan` is the one for an empty sequence. */
  restart(sequence: SequencePort, plan: EditPlan): void {
    this.held.release();
    this.held = sequence;
    this.#before = { spans: [], relocated: [] };
    this.#relocated = plan.relocatedRanges;
    this.#plan = plan;
  }

  /** While idle: the same tokens in other cells, [start, end) of which were computed anew. */
  repaired(sequence: SequencePort, { start, end }: Range): void {
    this.held.release();
    this.held = sequence;
    this.#relocated = within(outside(this.#relocated, start, end), sequence.exactLength, sequence.length);
    this.saved = false;
  }

  /** While idle: other cells, put together from these and others. */
  replaceCells(sequence: SequencePort, { spans, relocated }: Content): void {
    this.held.release();
    this.held = sequence;
    this.#spans = spans;
    this.#relocated = relocated;
    this.saved = false;
  }

  /** While idle: remembers the cells as they are now. */
  remember(): void {
    this.forgetPrevious();
    const { spans, relocated, exactLength } = this;
    this.previous = { sequence: this.held.fork(this.held.length), spans, relocated, exactLength };
  }

  /** While idle: the version before the last edit becomes the resident one, and the other way round. */
  undo(): void {
    const { previous } = this;
    if (!previous) return;
    const { spans, relocated, exactLength } = this;
    this.previous = { sequence: this.held, spans, relocated, exactLength };
    this.held = previous.sequence;
    this.#spans = previous.spans;
    this.#relocated = previous.relocated;
    this.saved = false;
  }

  forgetPrevious(): void {
    this.previous?.sequence.release();
    this.previous = undefined;
  }

  forgetRemains(): void {
    for (const { sequence } of this.victims.splice(0)) sequence.release();
  }

  /** Ends the job, if there is one, and gives all cells back. */
  release(): void {
    this.#abort?.();
    this.forgetPrevious();
    this.forgetRemains();
    this.held.release();
  }

  #wake(): void {
    for (const wake of this.#filled.splice(0)) wake();
  }
}
