// Finds the holder of the longest exact prefix of a prompt: an index by chained hashes of whole chunks of tokens, one
// chunk per page. A hash only names candidates; token ids decide what is shared, so a collision costs time but never
// changes an answer. Keys begin with the tenant, so a tenant never finds cells of another one.
import { createHash } from "node:crypto";
import { commonLength } from "../../text/span.ts";

/** The key of a chunk that follows the chunk with the key `previous`. */
export type ChunkHash = (previous: string, chunk: Int32Array) => string;

export interface Found<H> {
  readonly holder: H;
  /** Leading tokens that are equal and may be shared. */
  readonly count: number;
}

/** Keys of the leading chunks of one token array, computed as far as they were needed. */
interface ChunkKeys {
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
  /** A cache: the tokens of a request are looked up several times. */
  readonly #chunkKeys = new WeakMap<Int32Array, ChunkKeys>();

  constructor(
    /** Tokens per chunk. */
    private readonly chunk: number,
    private readonly hash: ChunkHash = sha256,
  ) {}

  get size(): number {
    return this.#entries.size;
  }

  /**
   * `tokens`: those of the holder that are exact or will be once they are computed; must not be changed later. `like`:
   * other tokens with the same beginning whose chunk keys are known and are reused.
   */
  set(holder: H, tenant: string | undefined, tokens: Int32Array, like?: Int32Array): void {
    const before = this.#entries.get(holder);
    // Most calls append: chunks that did not change keep their keys.
    for (const known of [before?.tokens, like]) if (known) this.#reuseKeys(tenant, tokens, known);
    const keys = this.keysOf(tenant, tokens);
    for (const key of before?.keys.slice(keys.length) ?? []) this.#leave(key, holder);
    for (const [index, key] of keys.entries()) {
      const old = before?.keys[index];
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

  /** The tokens that were set last for the holder. */
  tokensOf(holder: H): Int32Array | undefined {
    return this.#entries.get(holder)?.tokens;
  }

  /**
   * `usable`: leading cells that the holder may share now. Undefined: no holder shares a whole chunk. Chunk keys are
   * computed once per `wanted` array, which must not be changed.
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
    for (const [index, bucket] of [...buckets.entries()].reverse()) {
      // A holder that was not in a longer chain shares less than one chunk beyond this one.
      if (best && best.count >= (index + 2) * this.chunk) break;
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

  /** Keys of the whole chunks, front to back. */
  keysOf(tenant: string | undefined, tokens: Int32Array): string[] {
    return [...this.#walk(tenant, tokens)];
  }

  *#walk(tenant: string | undefined, tokens: Int32Array): Generator<string, void> {
    const { keys } = this.#cachedKeys(tenant, tokens);
    for (let index = 0; (index + 1) * this.chunk <= tokens.length; index++) {
      if (index === keys.length) {
        const chunk = tokens.subarray(index * this.chunk, (index + 1) * this.chunk);
        keys.push(this.hash(keys.at(-1) ?? saltOf(tenant), chunk));
      }
      yield keys[index]!;
    }
  }

  #cachedKeys(tenant: string | undefined, tokens: Int32Array): ChunkKeys {
    const known = this.#chunkKeys.get(tokens);
    if (known && known.tenant === tenant) return known;
    const chunkKeys = { tenant, keys: [] };
    this.#chunkKeys.set(tokens, chunkKeys);
    return chunkKeys;
  }

  #reuseKeys(tenant: string | undefined, tokens: Int32Array, known: Int32Array): void {
    const from = this.#chunkKeys.get(known);
    const { keys } = this.#cachedKeys(tenant, tokens);
    if (!from || from.tenant !== tenant || from.keys.length <= keys.length) return;
    const same = Math.floor(commonLength(known, tokens) / this.chunk);
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

/** Identifies a tenant in files and hashes, where its name must not appear because it may be an API key. */
export function saltOf(tenant: string | undefined): string {
  // Distinguishes no tenant from a tenant with an empty name. Files on disk depend on this text.
  const name = tenant === undefined ? "nobody" : `somebody ${tenant.length} ${tenant}`;
  return createHash("sha256").update(`pocket prefix\n${name}`).digest("base64url");
}

function sha256(previous: string, chunk: Int32Array): string {
  const bytes = new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return createHash("sha256").update(previous).update(bytes).digest("base64url");
}
