// What is resident, and in which order it goes: sessions by use, the versions before their last edits, and the
// leading spans of sessions that had to go. Every exact cell of them is in one index, so whoever begins with
// the same tokens shares them. Bookkeeping only: which session serves a request is session-router.ts's, when one has to
// go is sessions.ts's.
import type { EnginePort } from "../../engine/job.ts";
import { type Span, tokensOf, truncate } from "../../text/span.ts";
import { type ChunkHash, type Found, PrefixIndex } from "./prefix-index.ts";
import { Session, type Version } from "./session.ts";
import { victimSpans } from "./victims.ts";

/** A leading span shorter than this is computed again soon enough. */
const minPrefix = 128;
const leadsMax = 4;
/** Versions of remains, of all sessions; each is one sequence. */
const remainsMax = 64;

export interface ResidentsOptions {
  /** Tokens per page. */
  readonly pageSize: number;
  /** Sessions whose version before the last edit is kept. */
  readonly undoMax: number;
  readonly hash?: ChunkHash | undefined;
}

/** Cells that may be adopted, as they are now. */
export type Source = Pick<Version, "sequence" | "spans">;

export class Residents {
  /** Least recently used first. */
  readonly #sessions = new Map<string, Session>();
  /** Sessions with a previous version, oldest first. */
  readonly #undoable = new Set<Session>();
  /** Leading spans and their tenants, oldest first. */
  readonly #leads = new Map<Version, string | undefined>();
  /** Remains and whose they are, oldest first. */
  readonly #remains = new Map<Version, Session>();
  readonly #prefixes: PrefixIndex<Version>;

  constructor(private readonly options: ResidentsOptions) {
    this.#prefixes = new PrefixIndex(options.pageSize, options.hash);
  }

  get size(): number {
    return this.#sessions.size;
  }

  values(): Iterable<Session> {
    return this.#sessions.values();
  }

  get(id: string, tenant: string | undefined): Session | undefined {
    return this.#sessions.get(keyOf(id, tenant));
  }

  holds(session: Session): boolean {
    return this.get(session.id, session.tenant) === session;
  }

  /** The session is the one used last; what it holds is indexed as it is now. `like`: see PrefixIndex. */
  touch(session: Session, like?: Int32Array): void {
    const key = keyOf(session.id, session.tenant);
    this.#sessions.delete(key);
    this.#sessions.set(key, session);
    this.index(session, like);
  }

  index(session: Session, like?: Int32Array): void {
    this.#prefixes.set(session, session.tenant, session.exactTokens, like);
  }

  /** Takes it out; its own cells stay the caller's to release, an earlier version's are gone. */
  remove(session: Session): void {
    // The name may belong to a younger session by now.
    if (this.holds(session)) this.#sessions.delete(keyOf(session.id, session.tenant));
    this.#prefixes.delete(session);
    this.forgetPrevious(session);
    this.forgetRemains(session);
  }

  /** The longest exact beginning of `wanted` that somebody of the tenant holds now. */
  find(tenant: string | undefined, wanted: Int32Array, except?: Session): Found<Version> | undefined {
    return this.#prefixes.find(tenant, wanted, (holder) =>
      holder === except || holder === except?.previous ? 0 : holder.exactLength,
    );
  }

  /** The same, of sessions whose prompt is being computed, counted as if it were done. */
  findComing(tenant: string | undefined, wanted: Int32Array): Found<Session> | undefined {
    const isComing = (holder: Version) => holder instanceof Session && holder.filling && !holder.waiting;
    const found = this.#prefixes.find(tenant, wanted, (holder) =>
      isComing(holder) ? Number.POSITIVE_INFINITY : 0,
    );
    return found?.holder instanceof Session ? { holder: found.holder, count: found.count } : undefined;
  }

  /** Names of the whole chunks of `tokens`, as the index has them. */
  keysOf(tenant: string | undefined, tokens: Int32Array): string[] {
    return this.#prefixes.keysOf(tenant, tokens);
  }

  /** Keeps the cells of an idle session as they are, for an undo of the edit that follows. */
  remember(session: Session): void {
    if (this.options.undoMax === 0) return;
    this.forgetPrevious(session);
    session.remember();
    this.#indexPrevious(session);
    for (const oldest of this.#undoable) {
      if (this.#undoable.size <= this.options.undoMax) break;
      this.forgetPrevious(oldest);
    }
  }

  undo(session: Session): void {
    if (session.previous) this.#prefixes.delete(session.previous);
    session.undo();
    this.index(session);
    this.#indexPrevious(session);
  }

  forgetPrevious(session: Session): void {
    if (session.previous) this.#prefixes.delete(session.previous);
    this.#undoable.delete(session);
    session.forgetPrevious();
  }

  /** Releases the oldest version before an edit, of any session. Returns its tokens; 0: there is none. */
  dropOldestPrevious(): number {
    const [oldest] = this.#undoable;
    if (!oldest) return 0;
    const { length } = oldest.previous!.sequence;
    this.forgetPrevious(oldest);
    return length;
  }

  /**
   * What the edit to `wanted` takes out of these versions of an idle session is kept apart. After an undo there are
   * two: the one put aside goes whole with the edit after this one.
   */
  keepRemains(
    session: Session,
    versions: readonly Source[],
    wanted: readonly Span[],
    engine: Pick<EnginePort, "create">,
  ): void {
    if (this.options.undoMax === 0) return;
    for (const version of versions) {
      const held = new Set(session.victims.flatMap(({ spans }) => spans.map(({ key }) => key)));
      const { spans, ranges } = victimSpans(version.spans, wanted, (key) => held.has(key));
      if (ranges.length === 0) continue;
      const sequence = engine.create();
      for (const { start, end } of ranges) sequence.adopt(version.sequence, start, end);
      this.addRemains(session, { sequence, spans });
    }
  }

  addRemains(session: Session, { sequence, spans }: Source): void {
    const version = { sequence, spans, relocated: [], exactLength: 0 };
    session.victims.push(version);
    this.#remains.set(version, session);
    if (this.#remains.size > remainsMax) this.takeOldestRemains()?.version.sequence.release();
  }

  /** They are the caller's to release. Undefined: there are none. */
  takeOldestRemains(): { readonly version: Version; readonly session: Session } | undefined {
    for (const [version, session] of this.#remains) {
      this.#remains.delete(version);
      session.victims.splice(session.victims.indexOf(version), 1);
      return { version, session };
    }
    return undefined;
  }

  forgetRemains(session: Session): void {
    for (const version of session.victims) this.#remains.delete(version);
    session.forgetRemains();
  }

  /**
   * Whose cells a session may adopt: its own version before the last edit and its remains, and if it is
   * anonymous, those of idle anonymous sessions that begin with the same two spans: branches of one conversation.
   */
  sourcesFor(session: Session, wanted: readonly Span[]): Source[] {
    const isBranch = (other: Session) =>
      !other.named &&
      !other.busy &&
      other.tenant === session.tenant &&
      wanted.length > 2 &&
      [0, 1].every((place) => other.spans[place]?.key === wanted[place]!.key);
    const others = session.named ? [] : Array.from(this.#sessions.values()).filter(isBranch);
    return [session, ...others.filter((other) => other !== session)].flatMap((one) => this.sourcesOf(one));
  }

  /** The session's own cells, its version before the last edit, its remains. */
  sourcesOf(session: Session): Source[] {
    return [session, session.previous, ...session.victims.toReversed()].flatMap((version) =>
      version && version.spans.length > 0 ? [{ sequence: version.sequence, spans: version.spans }] : [],
    );
  }

  /** The idle session used longest ago, `spared` aside. */
  oldestIdle(spared?: Session): Session | undefined {
    for (const session of this.#sessions.values()) if (!session.busy && session !== spared) return session;
    return undefined;
  }

  /** Of a session that was taken out: its exact first span stays, unless somebody else holds it. */
  keepLead(session: Session): void {
    const [first] = session.spans;
    const length = first?.tokens.length ?? 0;
    if (!first || length < minPrefix || session.exactLength < length) return;
    if (this.find(session.tenant, first.tokens)?.count === length) return;
    const lead: Version = {
      sequence: session.sequence.fork(length),
      spans: truncate(session.spans, length),
      relocated: [],
      exactLength: length,
    };
    this.#leads.set(lead, session.tenant);
    this.#prefixes.set(lead, session.tenant, first.tokens);
    if (this.#leads.size > leadsMax) this.dropOldestLead();
  }

  /** Returns its tokens; 0: there is none. */
  dropOldestLead(): number {
    const [oldest] = this.#leads.keys();
    if (!oldest) return 0;
    this.#dropLead(oldest);
    return oldest.exactLength;
  }

  /** Releases leading spans of the tenant that `wanted` does not begin with. */
  forgetLeads(tenant: string | undefined, wanted: Int32Array): void {
    for (const [lead, owner] of [...this.#leads]) {
      const isWanted = lead.spans[0]!.tokens.every((token, place) => wanted[place] === token);
      if (owner === tenant && !isWanted) this.#dropLead(lead);
    }
  }

  #dropLead(lead: Version): void {
    this.#leads.delete(lead);
    this.#prefixes.delete(lead);
    lead.sequence.release();
  }

  #indexPrevious(session: Session): void {
    const { previous } = session;
    if (!previous) return;
    this.#undoable.add(session);
    // It was the session until now, whose chunks have names.
    const like = this.#prefixes.tokensOf(session);
    this.#prefixes.set(previous, session.tenant, exactTokensOf(previous), like);
  }
}

/** One string per pair, so that no id can look like another tenant's. */
export function keyOf(id: string, tenant: string | undefined): string {
  return JSON.stringify([tenant ?? null, id]);
}

function exactTokensOf({ spans, exactLength }: Version): Int32Array {
  return tokensOf(truncate(spans, exactLength));
}
