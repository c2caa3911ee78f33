// What is resident: the retention list and the prefix index, kept consistent. Every change of a session, its previous
// version, its victims or a cached prefix goes through this class. Which session serves a request is decided in
// session-router.ts, what is evicted and when in evictor.ts.
import type { EnginePort } from "../../engine/job.ts";
import { type Span, tokensOf, truncate } from "../../text/span.ts";
import type { ChunkHash } from "./prefix-index.ts";
import { type Retained, RetentionList } from "./retention-list.ts";
import type { Session, Version } from "./session.ts";
import { VersionIndex } from "./version-index.ts";
import { victimSpans } from "./victims.ts";

/** A shorter system prompt is not cached: computing it again takes little time. */
const minPrefix = 128;
const maxPrefixes = 4;
/** Victims of all sessions; each is one sequence. */
const maxVictims = 64;

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
  readonly index: VersionIndex;
  readonly retained: RetentionList;
  readonly #byName = new Map<string, Session>();

  constructor({ pageSize, undoMax, hash }: ResidentsOptions) {
    this.index = new VersionIndex(pageSize, hash);
    this.retained = new RetentionList({
      previous: undoMax,
      victim: maxVictims,
      session: Number.POSITIVE_INFINITY,
      prefix: maxPrefixes,
    });
  }

  /** Sessions, busy ones included. */
  get size(): number {
    return this.#byName.size;
  }

  /** Least recently used first. */
  sessions(): Session[] {
    return this.retained.of("session").map(({ session }) => session);
  }

  get(id: string, tenant: string | undefined): Session | undefined {
    return this.#byName.get(keyOf(id, tenant));
  }

  has(session: Session): boolean {
    return this.get(session.id, session.tenant) === session;
  }

  /** Makes the session the most recently used one and indexes its cells. `like`: see PrefixIndex. */
  touch(session: Session, like?: Int32Array): void {
    this.#byName.set(keyOf(session.id, session.tenant), session);
    this.retained.add({ kind: "session", session, version: session });
    this.updateIndex(session, like);
  }

  updateIndex(session: Session, like?: Int32Array): void {
    this.index.set(session, session.tenant, session.exactTokens, like);
  }

  /** Removes the session. The caller releases its own cells; its previous version and victims are released here. */
  remove(session: Session): void {
    // A newer session may have the same name by now.
    if (this.has(session)) this.#byName.delete(keyOf(session.id, session.tenant));
    this.retained.delete({ kind: "session", session, version: session });
    this.index.delete(session);
    this.dropPrevious(session);
    this.dropVictims(session);
  }

  /** Releases an entry that is not a session. */
  drop(entry: Exclude<Retained, { readonly kind: "session" }>): void {
    this.retained.delete(entry);
    this.index.delete(entry.version);
    if (entry.kind === "previous") entry.session.dropPrevious();
    else entry.version.sequence.release();
  }

  /** Keeps the cells of an idle session as they are, so that the edit that follows can be undone. */
  keepPrevious(session: Session): void {
    if (this.retained.limitOf("previous") === 0) return;
    this.dropPrevious(session);
    session.keepPrevious();
    this.#replacePrevious(session);
    for (const entry of this.retained.excess("previous")) this.drop(entry);
  }

  /** Exchanges the session's cells with those of its previous version. */
  undo(session: Session): void {
    if (session.previous) this.index.delete(session.previous);
    session.undo();
    this.updateIndex(session);
    this.#replacePrevious(session);
  }

  dropPrevious(session: Session): void {
    if (session.previous) this.drop({ kind: "previous", session, version: session.previous });
  }

  /**
   * Keeps the cells that the edit to `wanted` removes from these versions of an idle session. After an undo there are
   * two versions: the edit removes the exchanged one too.
   */
  keepVictims(
    session: Session,
    versions: readonly Source[],
    wanted: readonly Span[],
    engine: Pick<EnginePort, "create">,
  ): void {
    if (this.retained.limitOf("previous") === 0) return;
    for (const version of versions) {
      const cached = new Set(this.victimsOf(session).flatMap(({ spans }) => spans.map(({ key }) => key)));
      const { spans, ranges } = victimSpans(version.spans, wanted, (key) => cached.has(key));
      if (ranges.length === 0) continue;
      const sequence = engine.create();
      for (const { start, end } of ranges) sequence.adopt(version.sequence, start, end);
      this.addVictim(session, { sequence, spans });
    }
  }

  addVictim(session: Session, { sequence, spans }: Source): void {
    const version = { sequence, spans, relocated: [], exactLength: 0 };
    this.retained.add({ kind: "victim", session, version });
    for (const entry of this.retained.excess("victim")) this.drop(entry);
  }

  /** Oldest first. */
  victimsOf(session: Session): Version[] {
    return this.retained.of("victim").flatMap((entry) => (entry.session === session ? [entry.version] : []));
  }

  dropVictims(session: Session): void {
    for (const entry of this.retained.of("victim")) if (entry.session === session) this.drop(entry);
  }

  /** Caches the first span of a removed session if it is exact, long enough and not resident elsewhere. */
  keepPrefix(session: Session): void {
    const [first] = session.spans;
    const length = first?.tokens.length ?? 0;
    if (!first || length < minPrefix || session.exactLength < length) return;
    if (this.index.findExact(session.tenant, first.tokens)?.count === length) return;
    const version: Version = {
      sequence: session.sequence.fork(length),
      spans: truncate(session.spans, length),
      relocated: [],
      exactLength: length,
    };
    this.retained.add({ kind: "prefix", tenant: session.tenant, version });
    this.index.set(version, session.tenant, first.tokens);
    for (const entry of this.retained.excess("prefix")) this.drop(entry);
  }

  /** Releases the tenant's cached prefixes that `wanted` does not begin with. */
  dropOtherPrefixes(tenant: string | undefined, wanted: Int32Array): void {
    for (const entry of this.retained.of("prefix")) {
      const isWanted = entry.version.spans[0]!.tokens.every((token, index) => wanted[index] === token);
      if (entry.tenant === tenant && !isWanted) this.drop(entry);
    }
  }

  #replacePrevious(session: Session): void {
    const { previous } = session;
    if (!previous) return;
    this.retained.replace({ kind: "previous", session, version: previous });
    // The chunks were named when they were indexed as the session's own.
    const like = this.index.tokensOf(session);
    const { spans, exactLength } = previous;
    this.index.set(previous, session.tenant, tokensOf(truncate(spans, exactLength)), like);
  }
}

/** Identifies a session. JSON keeps an id from looking like another tenant's. */
export function keyOf(id: string, tenant: string | undefined): string {
  return JSON.stringify([tenant ?? null, id]);
}
