// Who holds the longest exact beginning of a prompt: an index over all exact cells, by chained hashes of whole
// chunks of tokens, as a page holds them. A hash only names candidates: what is shared is decided by comparing
// token ids, so a collision costs time and never an answer. Keys begin with the tenant, so nobody finds cells
// of anybody else. It knows tokens and holders, not what a holder is.
import { createHash } from "node:crypto";
import { commonLength } from "../../text/span.ts";

/** The name of a chunk that follows the chunk named `previous`. */
export type ChunkHash = (previous: string, chunk: Int32Array) => string;

export interface Found<H> {
  readonly holder: H;
  /** Leading tokens that are the same and may be shared. */
  readonly count: number;
}

/** Of the leading chunks that somebody has asked for; they grow with the walks. */
interface Names {
  readonly tenant: string | undefined;
  readonly keys: string[];
}

interface Entry {
  readonly tenant: string | undefined;
  readonly tokens: Int32Array;
  /** One per whole chunk. */
  readonly keys: readonly string[];
}

export class PrefixIndex<H> {
  readonly #holders = new Map<string, Set<H>>();
  readonly #entries = new Map<H, Entry>();
  /** A request's tokens are looked for several times. */
  readonly #names = new WeakMap<Int32Array, Names>();

  constructor(
    /** Tokens per chunk. */
    private readonly chunk: number,
    private readonly hash: ChunkHash = sha256,
  ) {}

  get size(): number {
    return this.#entries.size;
  }

  /**
   * `tokens` are the holder's exact ones, or what will be exact once they are filled; not to be changed later. `like`
   * are others that begin alike and whose chunks have been named: those names are taken over.
   */
  set(holder: H, tenant: string | undefined, tokens: Int32Array, like?: Int32Array): void {
    const before = this.#entries.get(holder);
    // Most sets are appends: chunks that did not change keep their names.
    for (const named of [before?.tokens, like]) if (named) this.#takeNames(tenant, tokens, named);
    const keys = this.keysOf(tenant, tokens);
    for (const key of before?.keys.slice(keys.length) ?? []) this.#leave(key, holder);
    for (const [place, key] of keys.entries()) {
      const old = before?.keys[place];
      if (old === key) continue;
      if (old !== undefined) this.#leave(old, holder);
      this.#enter(key, holder);
    }
    this.#entries.set(holder, { tenant, tokens, keys });
  }

  delete(holder: H): void {
    for (const key of this.#entries.get(holder)?.keys ?? []) this.#leave(key, holder);
    this.#entries.delete(holder);
  }

  /** What was set last for the holder. */
  tokensOf(holder: H): Int32Array | undefined {
    return this.#entries.get(holder)?.tokens;
  }

  /**
   * `usable`: leading cells that the holder may share now. Undefined: nobody shares a whole chunk. Whoever asks again
   * with the same array, which must not change, has no chunk named twice.
   */
  find(tenant: string | undefined, wanted: Int32Array, usable: (holder: H) => number): Found<H> | undefined {
    const buckets: Set<H>[] = [];
    for (const key of this.#walk(tenant, wanted)) {
      const bucket = this.#holders.get(key);
      if (!bucket) break;
      buckets.push(bucket);
    }
    let best: Found<H> | undefined;
    const seen = new Set<H>();
    for (const [place, bucket] of [...buckets.entries()].reverse()) {
      // Whoever was not seen in a longer chain shares less than one chunk more than this one.
      if (best && best.count >= (place + 2) * this.chunk) break;
      for (const holder of bucket) {
        if (seen.has(holder)) continue;
        seen.add(holder);
        const { tokens, tenant: owner } = this.#entries.get(holder)!;
        if (owner !== tenant) continue;
        const count = Math.min(commonLength(tokens, wanted), usable(holder));
        if (count >= this.chunk && count > (best?.count ?? 0)) best = { holder, count };
      }
    }
    return best;
  }

  /** Names of the whole chunks, front to back. */
  keysOf(tenant: string | undefined, tokens: Int32Array): string[] {
    return [...this.#walk(tenant, tokens)];
  }

  *#walk(tenant: string | undefined, tokens: Int32Array): Generator<string, void> {
    const { keys } = this.#namesOf(tenant, tokens);
    for (let place = 0; (place + 1) * this.chunk <= tokens.length; place++) {
      if (place === keys.length) {
        const chunk = tokens.subarray(place * this.chunk, (place + 1) * this.chunk);
        keys.push(this.hash(keys.at(-1) ?? saltOf(tenant), chunk));
      }
      yield keys[place]!;
    }
  }

  #namesOf(tenant: string | undefined, tokens: Int32Array): Names {
    const known = this.#names.get(tokens);
    if (known && known.tenant === tenant) return known;
    const names = { tenant, keys: [] };
    this.#names.set(tokens, names);
    return names;
  }

  #takeNames(tenant: string | undefined, tokens: Int32Array, named: Int32Array): void {
    const from = this.#names.get(named);
    const { keys } = this.#namesOf(tenant, tokens);
    if (!from || from.tenant !== tenant || from.keys.length <= keys.length) return;
    const same = Math.floor(commonLength(named, tokens) / this.chunk);
    keys.push(...from.keys.slice(keys.length, same));
  }

  #enter(key: string, holder: H): void {
    const bucket = this.#holders.get(key);
    if (bucket) bucket.add(holder);
    else this.#holders.set(key, new Set([holder]));
  }

  #leave(key: string, holder: H): void {
    const bucket = this.#holders.get(key);
    if (bucket?.delete(holder) && bucket.size === 0) this.#holders.delete(key);
  }
}

/** What stands for a tenant where its name, which may be an API key, must not: in files and in hashes. */
export function saltOf(tenant: string | undefined): string {
  // A length in front keeps no tenant apart from one with an empty name.
  const name = tenant === undefined ? "nobody" : `somebody ${tenant.length} ${tenant}`;
  return createHash("sha256").update(`pocket prefix\n${name}`).digest("base64url");
}

function sha256(previous: string, chunk: Int32Array): string {
  const bytes = new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return createHash("sha256").update(previous).update(bytes).digest("base64url");
}
