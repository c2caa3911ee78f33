// Restores sessions from disk when a request needs them: by name, or because a file shares more of the prompt than
// anything resident. Also restores victims that a request wants again. The request is routed afterwards as usual. If
// two requests need the same file, it is read once.
import type { EnginePort } from "../../engine/job.ts";
import { lengthOf } from "../../text/span.ts";
import { minAdopted } from "../planner/reuse-planner.ts";
import type { Evictor } from "../residency/evictor.ts";
import { keyOf, type Residents } from "../residency/residents.ts";
import { ownSources } from "../residency/reuse-sources.ts";
import { Session } from "../residency/session.ts";
import { bestInPlace, type CheckoutRequest } from "../residency/session-router.ts";
import type { DiskTier, FileMatch } from "./disk-tier.ts";

/** A file is read only if that saves computing this many tokens. */
const minRestored = 256;

export class DiskRestore {
  readonly #loading = new Map<string, Promise<Session | undefined>>();

  constructor(
    private readonly engine: EnginePort,
    private readonly residents: Residents,
    private readonly evictor: Evictor,
    private readonly disk: DiskTier,
  ) {}

  /** Returns the restored session. Undefined: no file helps, or it could not be read. Never rejects. */
  async restoreFor(request: CheckoutRequest): Promise<Session | undefined> {
    if (request.reuse === "none") return undefined;
    const session = await this.#session(request);
    const isEdit = request.reuse === "suffix" && !request.forget && !request.fork;
    if (isEdit) await this.#restoreVictims(request);
    return session;
  }

  async #session(request: CheckoutRequest): Promise<Session | undefined> {
    const { name: id, tenant, tokens } = request;
    if (id !== undefined) {
      if (this.residents.get(id, tenant)) return undefined;
      await this.disk.written({ id, tenant });
      if (this.disk.tokensOf({ id, tenant }) > 0) return this.#load(id, tenant);
    }
    const resident = this.residents.index.findExact(tenant, tokens)?.count ?? 0;
    const match = this.disk.longestPrefix(this.residents.index.keysOf(tenant, tokens));
    if (match && !this.residents.get(match.id, tenant)) {
      const gained = match.chunks * this.engine.pageSize - resident;
      if (gained >= minRestored) return this.#load(match.id, tenant);
    }
    return id === undefined ? this.#similarSession(request, resident) : undefined;
  }

  /** An anonymous session that has half of the prompt, as after a compaction from the first message on. */
  async #similarSession(request: CheckoutRequest, exact: number): Promise<Session | undefined> {
    const { tenant, wanted, reuse } = request;
    if (reuse !== "suffix") return undefined;
    const resident = Math.max(exact, bestInPlace(this.residents, request)?.tokens ?? 0);
    const length = lengthOf(wanted);
    if (length - resident < minRestored) return undefined;
    const best = (await this.disk.filesWith(tenant, wanted, undefined))
      .filter(({ id }) => !this.residents.get(id, tenant))
      .reduce((a: FileMatch | undefined, b) => (b.tokens > (a?.tokens ?? 0) ? b : a), undefined);
    if (!best || best.tokens * 2 < length || best.tokens - resident < minRestored) return undefined;
    return this.#load(best.id, tenant);
  }

  /** Restores victims of the session that may serve the request, if it wants them and they are not resident. */
  async #restoreVictims(request: CheckoutRequest): Promise<void> {
    const { name, tenant, wanted } = request;
    const session =
      name === undefined ? bestInPlace(this.residents, request)?.session : this.residents.get(name, tenant);
    if (!session) return;
    const sources = ownSources(this.residents, session);
    const resident = new Set(sources.flatMap(({ spans }) => spans.map(({ key }) => key)));
    const missing = wanted.filter(({ key }) => !resident.has(key));
    if (lengthOf(missing) < minAdopted) return;
    for (const { id, tokens } of await this.disk.filesWith(tenant, missing, session.id)) {
      if (tokens < minAdopted) continue;
      await this.evictor.reserve(this.disk.tokensOf({ id, tenant }), session);
      const loaded = await this.disk.load({ id, tenant }, this.engine);
      if (!loaded) continue;
      if (this.residents.has(session)) {
        this.residents.addVictim(session, loaded);
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
    await this.evictor.reserve(this.disk.tokensOf({ id, tenant }));
    const loaded = await this.disk.load({ id, tenant }, this.engine);
    if (!loaded) return undefined;
    // Another request may have created a session of that name meanwhile.
    if (this.residents.get(id, tenant)) {
      loaded.sequence.release();
      return undefined;
    }
    const session = new Session(loaded, loaded.sequence, loaded.spans, loaded.relocated);
    session.markSaved();
    this.residents.touch(session);
    return session;
  }
}
