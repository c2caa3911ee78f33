// Sessions that come back from disk when a request asks for them: by name, or because their file shares more of
// the prompt than anything that is resident. What comes back is a session like any other; who serves the request
// is decided afterwards. Two requests that need the same file read it once.
import type { EnginePort } from "../engine/job.ts";
import { tokensOf } from "../text/span.ts";
import type { CheckoutRequest } from "./choice.ts";
import type { DiskTier } from "./disk.ts";
import { keyOf, type Residents } from "./residents.ts";
import type { Room } from "./room.ts";
import { Session } from "./session.ts";

/** A file is read if it saves computing so many tokens. */
const leastRecalled = 256;

export class Recall {
  readonly #loading = new Map<string, Promise<Session | undefined>>();

  constructor(
    private readonly engine: EnginePort,
    private readonly residents: Residents,
    private readonly room: Room,
    private readonly disk: DiskTier,
  ) {}

  /** Undefined: nothing on disk is of use, or it could not be read. Resolves in any case. */
  async find({ name: id, reuse, tenant, wanted }: CheckoutRequest): Promise<Session | undefined> {
    if (reuse === "none") return undefined;
    if (id !== undefined) {
      if (this.residents.get(id, tenant)) return undefined;
      await this.disk.written({ id, tenant });
      if (this.disk.has({ id, tenant }) > 0) return this.#load(id, tenant);
    }
    const tokens = tokensOf(wanted);
    const match = this.disk.match(this.residents.keysOf(tenant, tokens));
    if (!match || this.residents.get(match.id, tenant)) return undefined;
    const here = this.residents.find(tenant, tokens)?.count ?? 0;
    const gained = match.chunks * this.engine.pageSize - here;
    return gained >= leastRecalled ? this.#load(match.id, tenant) : undefined;
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
    await this.room.reserve(this.disk.has({ id, tenant }));
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
