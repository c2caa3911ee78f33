// All resident conversations, and the checkout of design §7.3: which of them serves a request. The named one;
// else the idle anonymous one of which most can be reused; else a fork of one that is busy, named by somebody,
// or would lose much; else a new one. It also makes room: idle sessions go, least recently used first. It
// plans edits but runs no jobs.
import { randomUUID } from "node:crypto";
import type { Repair, Reuse } from "../context/chat.ts";
import type { EnginePort } from "../engine/job.ts";
import { pocketError } from "../errors.ts";
import { lengthOf, type Span, tokensOf, truncate } from "../text/span.ts";
import { type Plan, planEdit } from "./diff.ts";
import { type JobEnd, Session } from "./session.ts";

export interface CheckoutRequest {
  readonly wanted: readonly Span[];
  readonly name: string | undefined;
  readonly reuse: Reuse;
  readonly repair: Repair;
  /** Called when the session is deleted while it works. */
  readonly abort: () => void;
}

/** A session while it serves one request. Give it back with `checkin`, whatever happens. */
export interface Lease {
  readonly session: Session;
  /** Replaced by a cold one when the pool forces a restart. */
  plan: Plan;
  readonly request: CheckoutRequest;
}

export interface SessionInfo {
  readonly id: string;
  readonly named: boolean;
  readonly busy: boolean;
  readonly tokens: number;
  readonly exactTokens: number;
  /** Milliseconds since the epoch. */
  readonly usedAt: number;
}

/** Sharing less than this with another conversation is chance, and not worth a fork. */
const leastShared = 17;
/** An anonymous session loses at most this many tokens to a request that keeps nothing behind the cut. */
const mostCutInPlace = 512;

export class Sessions {
  /** Least recently used first. */
  readonly #sessions = new Map<string, Session>();
  #checkedIn: (() => void)[] = [];

  constructor(
    private readonly engine: EnginePort,
    /** Sessions kept; more exist only while all are busy. */
    private readonly max: number,
  ) {}

  list(): SessionInfo[] {
    return Array.from(this.#sessions.values(), (session) => ({
      id: session.id,
      named: session.named,
      busy: session.busy,
      tokens: session.busy ? session.sequence.length : lengthOf(session.spans),
      exactTokens: session.exactLength,
      usedAt: session.usedAt,
    }));
  }

  /** Ends a job under way with CANCELLED. Throws SESSION_NOT_FOUND. */
  delete(id: string): void {
    const session = this.#sessions.get(id);
    if (!session) throw pocketError("SESSION_NOT_FOUND", id);
    this.#drop(session);
  }

  checkout(request: CheckoutRequest): Lease {
    const { session, how } = this.#choose(request);
    const plan = this.#plan(session, request);
    session.begin(request.wanted, plan, request.abort);
    this.#touch(session);
    this.#shrink();
    return { session, plan: how ? { ...plan, reason: `${how} ${plan.reason}` } : plan, request };
  }

  /** Never throws: the one way back for a session, after success, error or abort. */
  checkin({ session }: Lease, end: JobEnd): void {
    const inStep = session.end(end);
    if (!inStep) this.#drop(session);
    else if (this.#sessions.get(session.id) === session) this.#touch(session);
    this.#shrink();
    for (const wake of this.#checkedIn.splice(0)) wake();
  }

  /** Lets go of idle sessions until `tokens` more fit, or none is left. An estimate: the engine has the last word. */
  reserve(tokens: number): void {
    while (this.engine.tokensFree < tokens && this.#evict());
  }

  /**
   * After a CACHE_FULL: lets go of one idle session; else waits for a working one to end. False: neither is to
   * be had. Two that wait for room do not wait for each other. Returns early when the signal fires.
   */
  async makeRoom({ session }: Lease, signal: AbortSignal): Promise<boolean> {
    if (this.#evict()) return true;
    const working = Array.from(this.#sessions.values()).some(
      (other) => other !== session && other.busy && !other.waiting,
    );
    if (!working) return false;
    session.waiting = true;
    await new Promise<void>((wake) => {
      this.#checkedIn.push(wake);
      signal.addEventListener("abort", () => wake(), { once: true });
    });
    session.waiting = false;
    return true;
  }

  /** The last way to find room: gives up the session's own cells, whose pages may be half dead. */
  restart(lease: Lease): void {
    const { session, request } = lease;
    const plan = planEdit([], request.wanted, { reuse: "none", exactLength: 0 });
    lease.plan = {
      ...plan,
      reason: "The pool had no room for an edit; the prompt was computed from the start.",
    };
    session.restart(this.engine.create(), lease.plan);
  }

  #choose(request: CheckoutRequest): { readonly session: Session; readonly how?: string } {
    const named = request.name === undefined ? undefined : this.#sessions.get(request.name);
    if (named && !named.busy) return { session: named };
    const anonymous = request.name === undefined;
    let best: Offer | undefined;
    for (const session of request.reuse === "none" ? [] : this.#sessions.values()) {
      const offer = (anonymous && this.#inPlace(session, request)) || this.#forked(session, request);
      if (offer && offer.tokens > (best?.tokens ?? 0)) best = offer;
    }
    if (best && best.fork === undefined) return { session: best.session };
    // A name that is taken by a busy session is left to it; this request then goes on under a new one.
    const id = named || anonymous ? `anon-${randomUUID()}` : request.name!;
    const isNamed = !named && !anonymous;
    if (!best?.fork) return { session: new Session(id, isNamed, this.engine.create()) };
    const { session: donor, fork } = best;
    const cells = donor.sequence.fork(fork);
    return {
      session: new Session(id, isNamed, cells, truncate(donor.spans, fork)),
      how: `Shares ${fork} tokens with session ${donor.id}.`,
    };
  }

  /** Reuse by editing the session itself; undefined where that would not be the same conversation. */
  #inPlace(session: Session, request: CheckoutRequest): Offer | undefined {
    if (session.busy || session.named) return undefined;
    const plan = this.#plan(session, request);
    const total = plan.kept + plan.relocated + plan.computed;
    const firstSpan = session.spans[0]?.tokens.length ?? 0;
    const leads = plan.kept >= leastShared && plan.kept + 1 >= Math.min(firstSpan, total);
    const follows = plan.relocated * 2 >= total;
    if (!leads && !follows) return undefined;
    const another = plan.relocated === 0 && plan.cut > mostCutInPlace && session.exactLength >= plan.kept;
    return another ? undefined : { session, tokens: plan.kept + plan.relocated };
  }

  /** Reuse by sharing the exact cells in front of the first difference; the session keeps all it has. */
  #forked(session: Session, { wanted }: CheckoutRequest): Offer | undefined {
    const shared = Math.min(sharedLength(session.spans, wanted), session.exactLength);
    return shared >= leastShared ? { session, tokens: shared, fork: shared } : undefined;
  }

  #plan(session: Session, { wanted, reuse, repair }: CheckoutRequest): Plan {
    return planEdit(session.spans, wanted, { reuse, repair, exactLength: session.exactLength });
  }

  #shrink(): void {
    while (this.#sessions.size > this.max && this.#evict());
  }

  /** Lets go of the idle session used longest ago. */
  #evict(): boolean {
    for (const session of this.#sessions.values()) {
      if (session.busy) continue;
      this.#drop(session);
      return true;
    }
    return false;
  }

  #touch(session: Session): void {
    this.#sessions.delete(session.id);
    this.#sessions.set(session.id, session);
  }

  #drop(session: Session): void {
    // The name may belong to a younger session by now.
    if (this.#sessions.get(session.id) === session) this.#sessions.delete(session.id);
    session.release();
  }
}

interface Offer {
  readonly session: Session;
  /** Prompt tokens that need not be computed. */
  readonly tokens: number;
  /** Cells to share; absent: the session itself serves. */
  readonly fork?: number;
}

function sharedLength(resident: readonly Span[], wanted: readonly Span[]): number {
  let shared = 0;
  for (const [place, span] of resident.entries()) {
    if (wanted[place]?.key !== span.key) break;
    shared += span.tokens.length;
  }
  const a = tokensOf(resident);
  const b = tokensOf(wanted);
  while (shared < a.length && shared < b.length && a[shared] === b[shared]) shared++;
  return shared;
}
