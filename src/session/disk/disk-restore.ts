// Sessions that come back from disk when a request asks for them: by name, or because their file shares more of
// the prompt than anything that is resident; and remains that a request wants again. What comes back is a session
// like any other, or remains of one; who serves the request is decided afterwards. Two requests that need the
// same file read it once.
import type { EnginePort } from "../../engine/job.ts";
import { lengthOf } from "../../text/span.ts";
import { minAdopted } from "../planner/reuse-planner.ts";
import type { Evictor } from "../residency/evictor.ts";
import { keyOf, type Residents } from "../residency/residents.ts";
import { Session } from "../residency/session.ts";
import { bestInPlace, type CheckoutRequest } from "../residency/session-router.ts";
import type { DiskTier, FileMatch } from "./disk-tier.ts";

/** A file is read if it saves computing so many tokens. */
const minRestored = 256;

export class DiskRestore {
  readonly #loading = new Map<string, Promise<Session | undefined>>();

  constructor(
    private readonly engine: EnginePort,
    private readonly residents: Residents,
    private readonly room: Evictor,
    private readonly disk: DiskTier,
  ) {}

  /** The session, if one came. Undefined: none on disk is of use, or it could not be read. Resolves in any case. */
  async find(request: CheckoutRequest): Promise<Session | undefined> {
    if (request.reuse === "none") return undefined;
    const session = await this.#session(request);
    const isEdit = request.reuse === "suffix" && !request.forget && !request.fork;
    if (isEdit) await this.#remains(request);
    return session;
  }

  async #session(request: CheckoutRequest): Promise<Session | undefined> {
    const { name: id, tenant, tokens } = request;
    if (id !== undefined) {
      if (this.residents.get(id, tenant)) return undefined;
      await this.disk.written({ id, tenant });
      if (this.disk.tokensOf({ id, tenant }) > 0) return this.#load(id, tenant);
    }
    const here = this.residents.find(tenant, tokens)?.count ?? 0;
    const match = this.disk.longestPrefix(this.residents.keysOf(tenant, tokens));
    if (match && !this.residents.get(match.id, tenant)) {
      const gained = match.chunks * this.engine.pageSize - here;
      if (gained >= minRestored) return this.#load(match.id, tenant);
    }
    return id === undefined ? this.#resembling(request, here) : undefined;
  }

  /** An anonymous session in which half of the prompt survives, as after a compaction from the first message on. */
  async #resembling(request: CheckoutRequest, exact: number): Promise<Session | undefined> {
    const { tenant, wanted, reuse } = request;
    if (reuse !== "suffix") return undefined;
    const here = Math.max(exact, bestInPlace(this.residents, request)?.tokens ?? 0);
    const length = lengthOf(wanted);
    if (length - here < minRestored) return undefined;
    const best = (await this.disk.filesWith(tenant, wanted, undefined))
      .filter(({ id }) => !this.residents.get(id, tenant))
      .reduce((a: FileMatch | undefined, b) => (b.tokens > (a?.tokens ?? 0) ? b : a), undefined);
    if (!best || best.tokens * 2 < length || best.tokens - here < minRestored) return undefined;
    return this.#load(best.id, tenant);
  }

  /** Remains on disk of the session that may serve this request, where it wants them and the session has them not. */
  async #remains(request: CheckoutRequest): Promise<void> {
    const { name, tenant, wanted } = request;
    const session =
      name === undefined ? bestInPlace(this.residents, request)?.session : this.residents.get(name, tenant);
    if (!session) return;
    const held = new Set(
      this.residents.sourcesOf(session).flatMap(({ spans }) => spans.map(({ key }) => key)),
    );
    const missing = wanted.filter(({ key }) => !held.has(key));
    if (lengthOf(missing) < minAdopted) return;
    for (const { id, tokens } of await this.disk.filesWith(tenant, missing, session.id)) {
      if (tokens < minAdopted) continue;
      await this.room.reserve(this.disk.tokensOf({ id, tenant }), session);
      const loaded = await this.disk.load({ id, tenant }, this.engine);
      if (!loaded) continue;
      if (this.residents.holds(session)) {
        this.residents.addRemains(session, loaded);
        this.disk.delete({ id, tenant });
      } else loaded.sequence.release();
    }
  }

  async #load(id: string, tenant: string | undefined): Promise<Session | undefined> {
    const key = keyOf(id, tenant);
    let loading = this.#loading.get(key);
    if (!loading) {
      loading = this.#read(id, tenant).finally(() => this.#loading.delete(key));
      this.#loading.set(key, loading);
    }
    return loading;
  }

  async #read(id: string, tenant: string | undefined): Promise<Session | undefined> {
    await this.room.reserve(this.disk.tokensOf({ id, tenant }));
    const loaded = await this.disk.load({ id, tenant }, this.engine);
    if (!loaded) return undefined;
    // Somebody may have begun a session of that name meanwhile.
    if (this.residents.get(id, tenant)) {
      loaded.sequence.release();
      return undefined;
    }
    const session = new Session(loaded, loaded.sequence, loaded.spans, loaded.relocated);
    session.saved = true;
    this.residents.touch(session);
    return session;
  }
}
