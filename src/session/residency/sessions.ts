// All conversations, from checkout to checkin: routes a request to a session, plans and prepares its edit, and takes
// the session back however the job ended. Also deletes, expires and evicts sessions. It plans edits but runs no jobs.
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
import { IdleRepair, type IdleWork } from "./idle-repair.ts";
import type { ChunkHash } from "./prefix-index.ts";
import { keyOf, Residents, type Source } from "./residents.ts";
import { sourcesFor } from "./reuse-sources.ts";
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
  /** Resident sessions; more exist only while all are busy. */
  readonly max: number;
  /** Milliseconds that an idle session lives. Absent: until it is evicted. */
  readonly ttlMs?: number | undefined;
  /** Sessions whose version before the last edit is kept. */
  readonly undoMax?: number;
  readonly disk?: DiskTier | undefined;
  /** Absent: relocated cells are not repaired while idle. */
  readonly idle?: { readonly delayMs: number; readonly tokens: number } | undefined;
  readonly log?: (line: string) => void;
  readonly hash?: ChunkHash | undefined;
}

/** A session while it serves one request. It must be returned with `checkin`. */
export interface Lease {
  readonly session: Session;
  /** Replaced by a cold one when the pool forces a restart. */
  plan: EditPlan;
  readonly request: CheckoutRequest;
}

/** An edit that drops fewer tokens keeps no previous version. */
const minUndone = 64;

export class Sessions {
  readonly #residents: Residents;
  readonly #idle: IdleRepair | undefined;
  readonly #totals = new Totals();
  readonly #reasons = new EvictionReasons();
  readonly #evictor: Evictor;
  readonly #restore: DiskRestore | undefined;
  /** Leases and checkouts in progress. */
  #active = 0;

  constructor(
    private readonly engine: EnginePort,
    private readonly options: SessionsOptions,
  ) {
    const { undoMax = 0, disk, hash, idle, log = () => undefined } = options;
    this.#residents = new Residents({ pageSize: engine.pageSize, undoMax, hash });
    this.#evictor = new Evictor(engine, this.#residents, this.#reasons, disk);
    this.#restore = disk && new DiskRestore(engine, this.#residents, this.#evictor, disk);
    if (!idle) return;
    this.#idle = new IdleRepair({
      engine,
      next: () => this.#nextRepair(idle.tokens),
      repaired: (session) => this.#residents.updateIndex(session),
      log,
      delayMs: idle.delayMs,
    });
  }

  /** Sessions of the tenant. */
  list(tenant?: string): SessionInfo[] {
    this.expire();
    return this.#residents
      .sessions()
      .filter((session) => session.tenant === tenant)
      .map(infoOf);
  }

  stats(): SessionStats {
    return this.#totals.read(this.#residents.sessions(), {
      repairedTokens: this.#idle?.repairedTokens ?? 0,
      evictions: this.#evictor.evictions,
      disk: this.options.disk,
    });
  }

  /** Throws SESSION_NOT_FOUND, also for a session of another tenant. */
  inspect(id: string, tenant?: string): SessionMap {
    const session = this.#residents.get(id, tenant);
    if (!session) throw pocketError("SESSION_NOT_FOUND", id);
    return mapOf(session);
  }

  /** Ends a running job with CANCELLED and deletes the session's file too. Throws SESSION_NOT_FOUND. */
  delete(id: string, tenant?: string): void {
    const session = this.#residents.get(id, tenant);
    const onDisk = this.options.disk?.delete({ id, tenant }) ?? false;
    if (!session && !onDisk) throw pocketError("SESSION_NOT_FOUND", id);
    if (!session) return;
    this.#drop(session);
    this.#reasons.set(keyOf(id, tenant), "was deleted");
  }

  async checkout(request: CheckoutRequest): Promise<Lease> {
    this.#active++;
    this.#idle?.pause();
    try {
      const restored = this.#restore && (await this.#restore.restoreFor(request));
      const awaited = sessionToAwait(this.#residents, request);
      if (awaited) await Promise.race([awaited.prefilled(), aborted(request.signal)]);
      const lease = this.#begin(request, restored);
      if (request.forget) await this.options.disk?.settled();
      return lease;
    } catch (cause) {
      this.#ended();
      throw cause;
    }
  }

  /** Takes the session back after success, error or abort. Never throws. */
  checkin({ session, plan, request }: Lease, end: JobEnd): void {
    const isConsistent = session.end(end);
    if (end.edited !== "no") this.#totals.add(plan);
    if (!isConsistent || request.fork) this.#drop(session);
    else if (this.#residents.has(session)) this.#residents.touch(session);
    this.#evictor.limitSessions(this.options.max);
    this.#evictor.wake();
    this.#ended();
  }

  /** Frees pages for `tokens` before the engine has to refuse the job. */
  async reserve(tokens: number): Promise<void> {
    await this.#evictor.reserve(tokens);
  }

  /** Evicts one idle entry for a running job; false: nothing is idle. */
  evictIdle(): boolean {
    return this.#evictor.evict() > 0;
  }

  /** After a CACHE_FULL: see Evictor.freePages. */
  async freePages({ session }: Lease, signal: AbortSignal): Promise<boolean> {
    this.#totals.preemptions++;
    return this.#evictor.freePages(session, signal);
  }

  /** The last resort when the pool is full: releases the session's own cells, so that the prompt is recomputed. */
  restart(lease: Lease): void {
    const { session, request } = lease;
    this.#totals.preemptions++;
    const plan = planEdit([], request.wanted, { reuse: "none", exactLength: 0 });
    lease.plan = {
      ...plan,
      reason: "The pool had no room for an edit; the prompt was computed from the start.",
    };
    session.restart(this.engine.create(), lease.plan);
    this.#residents.updateIndex(session);
  }

  /** Evicts idle sessions that are older than the time to live. */
  expire(now = Date.now()): void {
    const { ttlMs } = this.options;
    if (ttlMs === undefined) return;
    for (const session of this.#residents.sessions()) {
      if (!session.busy && session.usedAt + ttlMs <= now)
        this.#evictor.evictSession(session, "had outlived its time");
    }
  }

  /** Ends idle repair, writes idle sessions to disk if there is a disk tier, and releases everything. */
  async close(): Promise<void> {
    await this.#idle?.close();
    for (const session of this.#residents.sessions()) {
      if (session.busy || !this.options.disk) this.#drop(session);
      else this.#evictor.evictSession(session, "was closed");
    }
    for (const entry of this.#residents.retained.of("prefix")) this.#residents.drop(entry);
    await this.#evictor.written();
    await this.options.disk?.settled();
  }

  #begin(request: CheckoutRequest, restored: Session | undefined): Lease {
    const notes: string[] = [];
    const { wanted, forget, fork } = request;
    const session = this.#route(request, restored, notes);
    // A fork adopts nothing: a side question must not show one session's text to another.
    const sources = forget ? undefined : fork ? [] : sourcesFor(this.#residents, session, wanted);
    const now = planFor(session, request, sources);
    const before = forget ? undefined : session.previous && planFor(session.previous, request, sources);
    const undone = before !== undefined && isUndo(before, now);
    const plan = undone ? before : now;
    if (undone) {
      notes.push("The cells from before the last edit came back.");
      this.#residents.undo(session);
    }
    const cells = this.#executeReuse(session, plan, sources);
    if (forget) notes.push(...this.#forget(session, plan, request));
    else if (undone) this.#residents.keepVictims(session, [session, session.previous!], wanted, this.engine);
    else this.#keepRemoved(session, plan, request);
    if (plan.reusePlan && cells) {
      session.replaceCells(cells, contentOf(plan.reusePlan, wanted, session.relocated));
    }
    session.begin(wanted, plan, request.abort);
    this.#residents.touch(session, request.tokens);
    // A fork is released soon; no session is evicted for it.
    if (!fork) this.#evictor.limitSessions(this.options.max);
    return { session, plan: { ...plan, reason: [...notes, plan.reason].join(" ") }, request };
  }

  #executeReuse(
    session: Session,
    { reusePlan }: EditPlan,
    sources: readonly Source[] = [],
  ): SequencePort | undefined {
    try {
      return reusePlan && executeReuse(session.sequence, reusePlan, sources);
    } catch (cause) {
      if (!this.#residents.has(session)) session.release();
      throw cause;
    }
  }

  /** Keeps what the edit removes: its victims, and the version before it if the edit is worth an undo. */
  #keepRemoved(session: Session, { dropped, relocated }: EditPlan, { wanted }: CheckoutRequest): void {
    if (dropped < minUndone) return;
    const removed = removedTokens(session.spans, wanted);
    this.#residents.keepVictims(session, [session], wanted, this.engine);
    // A cut at the end or a changed trailer does not replace a previous version that is already kept.
    const isEdit = relocated > 0 && removed >= minUndone;
    if (isEdit || !session.previous) this.#residents.keepPrevious(session);
  }

  #route(request: CheckoutRequest, restored: Session | undefined, notes: string[]): Session {
    const { name, tenant, wanted } = request;
    const route = routeRequest(this.#residents, request);
    const source = route.kind === "fork" ? route.holder : route.kind === "session" && route.session;
    if (restored && source === restored) notes.push(`${restored.sequence.length} tokens came from disk.`);
    if (route.kind === "session") return route.session;
    // If the named session is busy, the request continues in a new anonymous one.
    const named = name !== undefined && !request.fork && this.#residents.get(name, tenant) === undefined;
    const id = named ? name : `anon-${randomUUID()}`;
    const reason = named && this.#reasons.take(keyOf(id, tenant));
    if (reason) notes.push(`Session ${id} ${reason}.`);
    if (route.kind === "new") return new Session({ id, named, tenant }, this.engine.create());
    const { holder, count } = route;
    notes.push(`Shares ${count} tokens with ${nameOf(holder)}.`);
    // The holder's spans may lack tokens of a running answer that have cells; the wanted tokens are the same.
    const spans = truncate(wanted, count);
    const relocated = within(holder.relocated, 0, count);
    return new Session({ id, named, tenant }, holder.sequence.fork(count), spans, relocated);
  }

  /** Releases everything that could bring removed tokens back. Returns a note on what other sessions still hold. */
  #forget(session: Session, { kept }: EditPlan, { tenant, tokens }: CheckoutRequest): string[] {
    this.#residents.dropPrevious(session);
    this.#residents.dropVictims(session);
    this.#residents.dropOtherPrefixes(tenant, tokens);
    this.options.disk?.delete(session);
    const other = this.#residents.index.findExact(tenant, tokensOf(session.spans), session);
    if (!other || other.count <= kept) return [];
    return [
      `${other.count - kept} of the tokens that go stay with ${nameOf(other.holder)}, which shares them.`,
    ];
  }

  #nextRepair(maxTokens: number): IdleWork | undefined {
    if (this.#active > 0) return undefined;
    // The most recently used session is the most likely to be used next.
    for (const session of this.#residents.sessions().reverse()) {
      const range = session.busy ? undefined : nextRepair(session, session.sequence.length, maxTokens);
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
