// One conversation: the resident spans, the sequence that holds their cells, which cells are relocated, and the
// version before the last edit. It knows what is resident, also after a job was cut short.
import type { SequencePort } from "../../engine/job.ts";
import { type Span, tokensOf } from "../../text/span.ts";
import type { EditPlan } from "../planner/edit-planner.ts";
import { outside, type Range, within } from "../planner/range.ts";
import { type Content, contentAfter } from "./reconcile.ts";

/** How a job ended, as far as cells are concerned. */
export interface JobEnd {
  /** Every token the engine reported, in order. */
  readonly generated: readonly number[];
  /** Whether the edit was applied; "unknown" if the job failed before the engine reported it. */
  readonly edited: "yes" | "no" | "unknown";
}

/** Resident cells and their content. */
export interface Version extends Content {
  readonly sequence: SequencePort;
  /** Leading cells that equal a cold prefill and have keys: what a session may share with another. */
  readonly exactLength: number;
}

export interface SessionName {
  readonly id: string;
  /** Named by a client: only serves requests that name it. */
  readonly named: boolean;
  /** The session does not exist for other tenants. */
  readonly tenant: string | undefined;
}

export class Session implements Version, SessionName {
  readonly id: string;
  readonly named: boolean;
  readonly tenant: string | undefined;
  #sequence: SequencePort;
  /** Resident tokens by span: exactly the sequence's cells while idle, the wanted prompt while busy. */
  #spans: readonly Span[];
  #relocated: readonly Range[];
  #previous: Version | undefined;
  #saved = false;
  #waiting = false;
  #before: Content = { spans: [], relocated: [] };
  #plan: EditPlan | undefined;
  #usedAt = Date.now();
  /** Aborts the running job. */
  #abort: (() => void) | undefined;
  #promptComputed = false;
  #prefillWaiters: (() => void)[] = [];

  constructor(
    { id, named, tenant }: SessionName,
    sequence: SequencePort,
    spans: readonly Span[] = [],
    relocated: readonly Range[] = [],
  ) {
    this.id = id;
    this.named = named;
    this.tenant = tenant;
    this.#sequence = sequence;
    this.#spans = spans;
    this.#relocated = relocated;
  }

  get sequence(): SequencePort {
    return this.#sequence;
  }

  get spans(): readonly Span[] {
    return this.#spans;
  }

  get relocated(): readonly Range[] {
    return this.#relocated;
  }

  /** The version before the last edit that removed something; shares its pages with this one. */
  get previous(): Version | undefined {
    return this.#previous;
  }

  /** A file on disk holds exactly these cells. */
  get saved(): boolean {
    return this.#saved;
  }

  get busy(): boolean {
    return this.#plan !== undefined;
  }

  /** Busy, but waiting for pages. */
  get waiting(): boolean {
    return this.#waiting;
  }

  /** Milliseconds since the epoch. */
  get usedAt(): number {
    return this.#usedAt;
  }

  get exactLength(): number {
    if (!this.#plan) return this.#sequence.exactLength;
    const { kept, cut, relocated, exactLength } = this.#plan;
    // Before the edit is applied, only the kept cells are certain. An append keeps all of them.
    const certain = this.#promptComputed || (cut === 0 && relocated === 0);
    const exact = certain ? exactLength : Math.min(kept, this.#sequence.exactLength);
    return Math.min(exact, this.#sequence.length);
  }

  /** Tokens that are exact, or will be once the running job has computed them. */
  get exactTokens(): Int32Array {
    const length = this.#plan ? this.#plan.exactLength : this.#sequence.exactLength;
    return tokensOf(this.#spans).slice(0, length);
  }

  /** The session was read from disk and has not changed since. */
  markSaved(): void {
    this.#saved = true;
  }

  /** The engine has computed the whole prompt. */
  promptComputed(): void {
    this.#promptComputed = true;
    this.#wake();
  }

  /** Its prompt is being computed. */
  get prefilling(): boolean {
    return this.#plan !== undefined && !this.#promptComputed;
  }

  /** Resolves when the prompt is computed or its job has ended. */
  prefilled(): Promise<void> {
    if (!this.prefilling) return Promise.resolve();
    return new Promise((resolve) => this.#prefillWaiters.push(resolve));
  }

  /** Counts as waiting until the promise resolves. */
  async waitFor(pages: Promise<void>): Promise<void> {
    this.#waiting = true;
    await pages;
    this.#waiting = false;
  }

  /** The session is busy from here to `end`. `abort` ends the job early. */
  begin(wanted: readonly Span[], plan: EditPlan, abort: () => void): void {
    this.#before = { spans: this.#spans, relocated: this.#relocated };
    this.#spans = wanted;
    this.#relocated = plan.relocatedRanges;
    this.#plan = plan;
    this.#abort = abort;
    this.#promptComputed = false;
    this.#saved = false;
    this.#usedAt = Date.now();
  }

  /** Reconciles the resident spans with the sequence. False: impossible, and the session must be dropped. */
  end({ generated, edited }: JobEnd): boolean {
    const plan = this.#plan;
    this.#plan = undefined;
    this.#abort = undefined;
    this.#waiting = false;
    this.#usedAt = Date.now();
    this.#wake();
    if (this.#sequence.released || !plan) return false;
    const job = { before: this.#before, wanted: this.#spans, plan, generated, refused: edited === "no" };
    const resident = this.#sequence.tokens();
    // A fork that the engine has not created yet reports no tokens, so its content cannot be checked.
    if (resident.length !== this.#sequence.length) return false;
    const content = contentAfter(job, resident);
    if (!content) return false;
    this.#spans = content.spans;
    this.#relocated = within(content.relocated, this.#sequence.exactLength, this.#sequence.length);
    return true;
  }

  /** Replaces the cells by an empty sequence while busy. `plan` is the one for an empty sequence. */
  restart(sequence: SequencePort, plan: EditPlan): void {
    this.#sequence.release();
    this.#sequence = sequence;
    this.#before = { spans: [], relocated: [] };
    this.#relocated = plan.relocatedRanges;
    this.#plan = plan;
  }

  /** While idle: `sequence` holds the same tokens, with the cells [start, end) recomputed. */
  repaired(sequence: SequencePort, { start, end }: Range): void {
    const relocated = outside(this.#relocated, start, end);
    this.replaceCells(sequence, {
      spans: this.#spans,
      relocated: within(relocated, sequence.exactLength, sequence.length),
    });
  }

  /** While idle: takes over another sequence and releases its own. */
  replaceCells(sequence: SequencePort, { spans, relocated }: Content): void {
    this.#sequence.release();
    this.#sequence = sequence;
    this.#spans = spans;
    this.#relocated = relocated;
    this.#saved = false;
  }

  /** While idle: keeps the cells as they are now as the previous version. */
  keepPrevious(): void {
    this.dropPrevious();
    const { spans, relocated, exactLength } = this;
    this.#previous = { sequence: this.#sequence.fork(this.#sequence.length), spans, relocated, exactLength };
  }

  /** While idle: exchanges the resident version and the previous one. */
  undo(): void {
    const previous = this.#previous;
    if (!previous) return;
    const { spans, relocated, exactLength } = this;
    this.#previous = { sequence: this.#sequence, spans, relocated, exactLength };
    this.#sequence = previous.sequence;
    this.#spans = previous.spans;
    this.#relocated = previous.relocated;
    this.#saved = false;
  }

  dropPrevious(): void {
    this.#previous?.sequence.release();
    this.#previous = undefined;
  }

  /** Ends the running job, if any, and releases all cells. */
  release(): void {
    this.#abort?.();
    this.dropPrevious();
    this.#sequence.release();
  }

  #wake(): void {
    for (const wake of this.#prefillWaiters.splice(0)) wake();
  }
}
