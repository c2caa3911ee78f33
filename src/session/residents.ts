// What is resident, and in which order it goes: sessions by use, the versions before their last edits, and the
// leading spans of sessions that had to go. Every exact cell of them is in one index, so whoever begins with
// the same tokens shares them. Bookkeeping only: which session serves a request is choice.ts's, when one has to
// go is sessions.ts's.
import { tokensOf, truncate } from "../text/span.ts";
import { type ChunkHash, type Found, PrefixIndex } from "./prefixes.ts";
import { Session, type Version } from "./session.ts";

/** A leading span shorter than this is computed again soon enough. */
const leastLead = 128;
const leadsMax = 4;

export interface ResidentsOptions {
  /** Tokens per page. */
  readonly pageSize: number;
  /** Sessions whose version before the last edit is kept. */
  readonly undoMax: number;
  readonly hash?: ChunkHash | undefined;
}

export class Residents {
  /** Least recently used first. */
  readonly #sessions = new Map<string, Session>();
  /** Sessions with a previous version, oldest first. */
  readonly #undoable = new Set<Session>();
  /** Leading spans and their tenants, oldest first. */
  readonly #leads = new Map<Version, string | undefined>();
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

  /** The session is the one used last; what it holds is indexed as it is now. */
  touch(session: Session): void {
    const key = keyOf(session.id, session.tenant);
    this.#sessions.delete(key);
    this.#sessions.set(key, session);
    this.index(session);
  }

  index(session: Session): void {
    this.#prefixes.set(session, session.tenant, session.exactTokens);
  }

  /** Takes it out; its own cells stay the caller's to release, an earlier version's are gone. */
  remove(session: Session): void {
    // The name may belong to a younger session by now.
    if (this.holds(session)) this.#sessions.delete(keyOf(session.id, session.tenant));
    this.#prefixes.delete(session);
    this.forgetPrevious(session);
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

  /** The idle session used longest ago. */
  oldestIdle(): Session | undefined {
    for (const session of this.#sessions.values()) if (!session.busy) return session;
    return undefined;
  }

  /** Of a session that was taken out: its exact first span stays, unless somebody else holds it. */
  keepLead(session: Session): void {
    const [first] = session.spans;
    const length = first?.tokens.length ?? 0;
    if (!first || length < leastLead || session.exactLength < length) return;
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
    this.#prefixes.set(previous, session.tenant, exactTokensOf(previous));
  }
}

/** One string per pair, so that no id can look like another tenant's. */
export function keyOf(id: string, tenant: string | undefined): string {
  return JSON.stringify([tenant ?? null, id]);
}

function exactTokensOf({ spans, exactLength }: Version): Int32Array {
  return tokensOf(truncate(spans, exactLength));
}
