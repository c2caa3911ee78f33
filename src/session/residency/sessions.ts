// All conversations, from checkout to their end (design §7.3): a request is given the session that serves it
// best (session-router.ts), and the session comes back whatever happens. Sessions end by deletion, by age, by number or
// because the pool is full, least recently used first; where there is a disk tier their cells go there and are
// brought back. It plans edits but runs no jobs.
import { randomUUID } from "node:crypto";
import type { EnginePort, SequencePort } from "../../engine/job.ts";
import { pocketError } from "../../errors.ts";
import { tokensOf, truncate } from "../../text/span.ts";
import { DiskRestore } from "../disk/disk-restore.ts";
import type { DiskTier } from "../disk/disk-tier.ts";
import { type EditPlan, planEdit } from "../planner/edit-planner.ts";
import { within } from "../planner/range.ts";
import { nextRepair } from "../planner/repair.ts";
import { contentOf, executeReuse } from "../planner/reuse-executor.ts";
import {
  infoOf,
  mapOf,
  type SessionInfo,
  type SessionMap,
  type SessionStats,
  Totals,
} from "../session-info.ts";
import { EvictionReasons } from "./eviction-reasons.ts";
import { Evictor } from "./evictor.ts";
import { IdleRepair } from "./idle-repair.ts";
import type { ChunkHash } from "./prefix-index.ts";
import { keyOf, Residents, type Source } from "./residents.ts";
import { type JobEnd, Session } from "./session.ts";
import {
  type CheckoutRequest,
  isUndo,
  nameOf,
  planFor,
  routeRequest,
  sessionToAwait,
} from "./session-router.ts";
import { removedTokens } from "./victims.ts";

export interface SessionsOptions {
  /** Sessions kept; more exist only while all are busy. */
  readonly max: number;
  /** Milliseconds an idle session lives; absent: until there is no room. */
  readonly ttlMs?: number | undefined;
  /** Sessions whose version before the last edit is kept. */
  readonly undoMax?: number;
  readonly disk?: DiskTier | undefined;
  /** Absent: relocated cells are left as they are. */
  readonly idle?: { readonly delayMs: number; readonly tokens: number } | undefined;
  readonly log?: (line: string) => void;
  readonly hash?: ChunkHash | undefined;
}

/** A session while it serves one request. Give it back with `checkin`, whatever happens. */
export interface Lease {
  readonly session: Session;
  /** Replaced by a cold one when the pool forces a restart. */
  plan: EditPlan;
  readonly request: CheckoutRequest;
}

/** An edit that drops less than this is not worth an undo. */
const minUndone = 64;

export class Sessions {
  readonly #residents: Residents;
  readonly #idle: IdleRepair | undefined;
  readonly #totals = new Totals();
  readonly #graves = new EvictionReasons();
  readonly #room: Evictor;
  readonly #recall: DiskRestore | undefined;
  /** Leases that are out, and checkouts under way. */
  #active = 0;

  constructor(
    private readonly engine: EnginePort,
    private readonly options: SessionsOptions,
  ) {
    const { undoMax = 0, disk, hash, idle, log = () => undefined } = options;
    this.#residents = new Residents({ pageSize: engine.pageSize, undoMax, hash });
    this.#room = new Evictor(engine, this.#residents, this.#graves, disk);
    this.#recall = disk && new DiskRestore(engine, this.#residents, this.#room, disk);
    if (!idle) return;
    this.#idle = new IdleRepair({
      engine,
      next: () => this.#nextWork(idle.tokens),
      repaired: (session) => this.#residents.index(session),
      log,
      delayMs: idle.delayMs,
    });
  }

  /** Those of the tenant. */
  list(tenant?: string): SessionInfo[] {
    this.sweep();
    return Array.from(this.#residents.values())
      .filter((session) => session.tenant === tenant)
      .map(infoOf);
  }

  stats(): SessionStats {
    return this.#totals.read(this.#residents.values(), {
      repairedTokens: this.#idle?.repairedTokens ?? 0,
      evictions: this.#room.evictions,
      disk: this.options.disk,
    });
  }

  /** Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  inspect(id: string, tenant?: string): SessionMap {
    const session = this.#residents.get(id, tenant);
    if (!session) throw pocketError("SESSION_NOT_FOUND", id);
    return mapOf(session);
  }

  /** Ends a job under way with CANCELLED; its file goes too. Throws SESSION_NOT_FOUND. */
  delete(id: string, tenant?: string): void {
    const session = this.#residents.get(id, tenant);
    const onDisk = this.options.disk?.delete({ id, tenant }) ?? false;
    if (!session && !onDisk) throw pocketError("SESSION_NOT_FOUND", id);
    if (!session) return;
    this.#drop(session);
    this.#graves.set(keyOf(id, tenant), "was deleted");
  }

  async checkout(request: CheckoutRequest): Promise<Lease> {
    this.#active++;
    this.#idle?.pause();
    try {
      const recalled = this.#recall && (await this.#recall.find(request));
      const coming = sessionToAwait(this.#residents, request);
      if (coming) await Promise.race([coming.filled(), aborted(request.signal)]);
      const lease = this.#begin(request, recalled);
      if (request.forget) await this.options.disk?.settled();
      return lease;
    } catch (cause) {
      this.#ended();
      throw cause;
    }
  }

  /** Never throws: the one way back for a session, after success, error or abort. */
  checkin({ session, plan, request }: Lease, end: JobEnd): void {
    const inStep = session.end(end);
    if (end.edited !== "no") this.#totals.add(plan);
    if (!inStep || request.fork) this.#drop(session);
    else if (this.#residents.holds(session)) this.#residents.touch(session);
    this.#room.shrink(this.options.max);
    this.#room.wake();
    this.#ended();
  }

  /** Makes room for so many tokens before the engine has to refuse them. */
  async reserve(tokens: number): Promise<void> {
    await this.#room.reserve(tokens);
  }

  /** Evicts one idle entry for a running job; false: nothing is idle. */
  evictIdle(): boolean {
    return this.#room.evict() > 0;
  }

  /**
   * After a CACHE_FULL: lets go of something idle; else waits for a working session to end. False: neither is to
   * be had. Two that wait for room do not wait for each other. Returns early when the signal fires.
   */
  async makeRoom({ session }: Lease, signal: AbortSignal): Promise<boolean> {
    this.#totals.preemptions++;
    return this.#room.find(session, signal);
  }

  /** The last way to find room: gives up the session's own cells, whose pages may be half dead. */
  restart(lease: Lease): void {
    const { session, request } = lease;
    this.#totals.preemptions++;
    const plan = planEdit([], request.wanted, { reuse: "none", exactLength: 0 });
    lease.plan = {
      ...plan,
      reason: "The pool had no room for an edit; the prompt was computed from the start.",
    };
    session.restart(this.engine.create(), lease.plan);
    this.#residents.index(session);
  }

  /** Lets go of idle sessions that have outlived their time. */
  sweep(now = Date.now()): void {
    const { ttlMs } = this.options;
    if (ttlMs === undefined) return;
    for (const session of [...this.#residents.values()]) {
      if (!session.busy && session.usedAt + ttlMs <= now) this.#room.depart(session, "had outlived its time");
    }
  }

  /** Ends idle repair, writes idle sessions to disk if there is one, and releases everything. */
  async close(): Promise<void> {
    await this.#idle?.close();
    for (const session of [...this.#residents.values()]) {
      if (session.busy || !this.options.disk) this.#drop(session);
      else this.#room.depart(session, "was closed");
    }
    while (this.#residents.dropOldestLead() > 0);
    await this.#room.departed();
    await this.options.disk?.settled();
  }

  #begin(request: CheckoutRequest, recalled: Session | undefined): Lease {
    const notes: string[] = [];
    const session = this.#chosen(request, recalled, notes);
    const sources = request.forget ? undefined : this.#sources(session, request);
    const now = planFor(session, request, sources);
    const before = request.forget
      ? undefined
      : session.previous && planFor(session.previous, request, sources);
    const undone = before !== undefined && isUndo(before, now);
    const plan = undone ? before : now;
    if (undone) notes.push("The cells from before the last edit came back.");
    if (undone) this.#residents.undo(session);
    const cells = this.#assemble(session, plan, sources);
    if (request.forget) notes.push(...this.#forget(session, plan, request));
    else if (undone)
      this.#residents.keepRemains(session, [session, session.previous!], request.wanted, this.engine);
    else this.#remember(session, plan, request);
    if (plan.reusePlan && cells) {
      session.replaceCells(cells, contentOf(plan.reusePlan, request.wanted, session.relocated));
    }
    session.begin(request.wanted, plan, request.abort);
    this.#residents.touch(session, request.tokens);
    // A fork is gone soon, and nobody has to go for it.
    if (!request.fork) this.#room.shrink(this.options.max);
    return { session, plan: { ...plan, reason: [...notes, plan.reason].join(" ") }, request };
  }

  #assemble(
    session: Session,
    { reusePlan }: EditPlan,
    sources: readonly Source[] = [],
  ): SequencePort | undefined {
    try {
      return reusePlan && executeReuse(session.sequence, reusePlan, sources);
    } catch (cause) {
      if (!this.#residents.holds(session)) session.release();
      throw cause;
    }
  }

  /** A side question adopts from nobody: named sessions share with nobody else. */
  #sources(session: Session, { fork, wanted }: CheckoutRequest): Source[] {
    return fork ? [] : this.#residents.sourcesFor(session, wanted);
  }

  /** Keeps what the edit takes away, as far as somebody may want it back. */
  #remember(session: Session, { dropped, relocated }: EditPlan, { wanted }: CheckoutRequest): void {
    if (dropped < minUndone) return;
    const lasting = removedTokens(session.spans, wanted);
    this.#residents.keepRemains(session, [session], wanted, this.engine);
    // What is dropped without anything moving, or because a trailer changed, is not worth more than a version
    // that is kept already.
    const isEdit = relocated > 0 && lasting >= minUndone;
    if (isEdit || !session.previous) this.#residents.remember(session);
  }

  #chosen(request: CheckoutRequest, recalled: Session | undefined, notes: string[]): Session {
    const { name, tenant, wanted } = request;
    const choice = routeRequest(this.#residents, request);
    const source = choice.kind === "fork" ? choice.holder : choice.kind === "session" && choice.session;
    if (recalled && source === recalled) notes.push(`${recalled.sequence.length} tokens came from disk.`);
    if (choice.kind === "session") return choice.session;
    // A name that is taken by a busy session is left to it; this request then goes on under a new one.
    const named = name !== undefined && !request.fork && this.#residents.get(name, tenant) === undefined;
    const id = named ? name : `anon-${randomUUID()}`;
    const why = named && this.#graves.take(keyOf(id, tenant));
    if (why) notes.push(`Session ${id} ${why}.`);
    if (choice.kind === "new") return new Session({ id, named, tenant }, this.engine.create());
    const { holder, count } = choice;
    notes.push(`Shares ${count} tokens with ${nameOf(holder)}.`);
    // The holder's spans may be behind its cells by an answer under way; the wanted ones are the same tokens.
    const spans = truncate(wanted, count);
    const relocated = within(holder.relocated, 0, count);
    return new Session({ id, named, tenant }, holder.sequence.fork(count), spans, relocated);
  }

  /** Before an edit that nothing resident is to remember; says what cannot be forgotten here. */
  #forget(session: Session, { kept }: EditPlan, { tenant, tokens }: CheckoutRequest): string[] {
    this.#residents.forgetPrevious(session);
    this.#residents.forgetRemains(session);
    this.#residents.forgetLeads(tenant, tokens);
    this.options.disk?.delete(session);
    const other = this.#residents.find(tenant, tokensOf(session.spans), session);
    if (!other || other.count <= kept) return [];
    return [
      `${other.count - kept} of the tokens that go stay with ${nameOf(other.holder)}, which shares them.`,
    ];
  }

  #nextWork(most: number): { session: Session; range: { start: number; end: number } } | undefined {
    if (this.#active > 0) return undefined;
    // Who asked last will ask next.
    for (const session of [...this.#residents.values()].reverse()) {
      const range = session.busy ? undefined : nextRepair(session, session.sequence.length, most);
      if (range) return { session, range };
    }
    return undefined;
  }

  #ended(): void {
    this.#active--;
    if (this.#active === 0) this.#idle?.wake();
  }

  #drop(session: Session): void {
    this.#residents.remove(session);
    session.release();
  }
}

function aborted(signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => signal?.addEventListener("abort", () => resolve(), { once: true }));
}
