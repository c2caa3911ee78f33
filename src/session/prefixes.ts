// Who holds the longest exact beginning of a prompt: an index over all exact cells, by chained hashes of whole
// chunks of tokens, as a page holds them. A hash only names candidates: what is shared is decided by comparing
// token ids, so a collision costs time and never an answer. Keys begin with the tenant, so nobody finds cells
// of anybody else. It knows tokens and holders, not what a holder is.
import { createHash } from "node:crypto";

/** The name of a chunk that follows the chunk named `previous`. */
export type ChunkHash = (previous: string, chunk: Int32Array) => string;

export interface Found<H> {
  readonly holder: H;
  /** Leading tokens that are the same and may be shared. */
  readonly count: number;
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

  constructor(
    /** Tokens per chunk. */
    private readonly chunk: number,
    private readonly hash: ChunkHash = sha256,
  ) {}

  get size(): number {
    return this.#entries.size;
  }

  /** `tokens` are the holder's exact ones, or what will be exact once they are filled; not to be changed later. */
  set(holder: H, tenant: string | undefined, tokens: Int32Array): void {
    const before = this.#entries.get(holder);
    // Most sets are appends: chunks that did not change keep their names.
    const same = before?.tenant === tenant ? commonLength(before?.tokens, tokens) : 0;
    const keys = this.keysOf(tenant, tokens, before?.keys.slice(0, Math.floor(same / this.chunk)));
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

  /** `usable`: leading cells that the holder may share now. Undefined: nobody shares a whole chunk. */
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

  /** Names of the whole chunks, front to back; `known` are the first of them. */
  keysOf(tenant: string | undefined, tokens: Int32Array, known: readonly string[] = []): string[] {
    return [...known, ...this.#walk(tenant, tokens, known)];
  }

  *#walk(
    tenant: string | undefined,
    tokens: Int32Array,
    known: readonly string[] = [],
  ): Generator<string, void> {
    let key = known.at(-1) ?? saltOf(tenant);
    for (let end = (known.length + 1) * this.chunk; end <= tokens.length; end += this.chunk) {
      key = this.hash(key, tokens.subarray(end - this.chunk, end));
      yield key;
    }
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

export function commonLength(a: Int32Array | undefined, b: Int32Array): number {
  const most = Math.min(a?.length ?? 0, b.length);
  let count = 0;
  while (count < most && a![count] === b[count]) count++;
  return count;
}
