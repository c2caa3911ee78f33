import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ChunkHash, PrefixIndex, saltOf } from "../../src/session/residency/prefix-index.ts";

const chunk = 4;
const tokens = fc.array(fc.nat(1), { maxLength: 24 }).map((ids) => Int32Array.from(ids));
const tenant = fc.constantFrom(undefined, "", "a");
const act = fc.oneof(
  fc.record({ kind: fc.constant("set" as const), holder: fc.nat(5), tenant, tokens, usable: fc.nat(24) }),
  fc.record({ kind: fc.constant("delete" as const), holder: fc.nat(5) }),
  fc.record({ kind: fc.constant("find" as const), tenant, tokens }),
);

/** Only four keys for all chunks of all tenants. */
const weak: ChunkHash = (_, part) => String((part[0]! + part.at(-1)!) % 4);

interface Held {
  readonly tenant: string | undefined;
  readonly tokens: Int32Array;
  readonly usable: number;
}

/** Compares every holder token by token. */
function longest(held: ReadonlyMap<number, Held>, owner: string | undefined, wanted: Int32Array): number {
  const counts = Array.from(held.values(), (holder) => {
    if (holder.tenant !== owner) return 0;
    const differs = wanted.findIndex((token, index) => holder.tokens[index] !== token);
    const common = Math.min(differs < 0 ? wanted.length : differs, holder.usable, holder.tokens.length);
    return common >= chunk ? common : 0;
  });
  return Math.max(0, ...counts);
}

describe("the prefix index", () => {
  it.each([
    ["SHA-256", undefined],
    ["a hash of four values, so that almost everything collides", weak],
  ])("finds the same as a comparison of every token, with %s", (_, hash) => {
    fc.assert(
      fc.property(fc.array(act, { maxLength: 30 }), (acts) => {
        const index = new PrefixIndex<number>(chunk, hash);
        const held = new Map<number, Held>();
        for (const one of acts) {
          if (one.kind === "set") {
            index.set(one.holder, one.tenant, one.tokens);
            held.set(one.holder, one);
          } else if (one.kind === "delete") {
            index.delete(one.holder);
            held.delete(one.holder);
          } else {
            const found = index.find(one.tenant, one.tokens, (holder) => held.get(holder)!.usable);
            expect(found?.count ?? 0).toBe(longest(held, one.tenant, one.tokens));
          }
        }
        for (const holder of held.keys()) index.delete(holder);
        expect(index.size).toBe(0);
        expect(index.find(undefined, new Int32Array(24), () => 24)).toBeUndefined();
      }),
      { numRuns: 300 },
    );
  });

  it("has different keys for every tenant, whatever its name", () => {
    const index = new PrefixIndex<string>(chunk);
    const ids = Int32Array.from({ length: 8 }, (_, index) => index);
    const owners = [undefined, "", "a", "nobody", "somebody 1 a", "1 a"];
    const names = owners.flatMap((owner) => index.keysOf(owner, ids));
    expect(new Set(names).size).toBe(names.length);
    expect(new Set(owners.map(saltOf)).size).toBe(owners.length);
    expect(saltOf("sk-secret")).not.toContain("secret");
  });

  it("hashes only the appended part of a conversation", () => {
    const { hash, count } = counting();
    const index = new PrefixIndex<string>(chunk, hash);
    index.set("s", undefined, new Int32Array(4000));
    expect(count()).toBe(1000);
    index.set("s", undefined, new Int32Array(4009));
    expect(count()).toBe(1002);
  });

  it("hashes no chunk twice for the same token array, and reuses the keys of equal tokens", () => {
    const { hash, count } = counting();
    const index = new PrefixIndex<string>(chunk, hash);
    index.set("s", undefined, new Int32Array(4000));
    const wanted = new Int32Array(4000).fill(7, 3000);
    for (let time = 0; time < 3; time++) expect(index.find(undefined, wanted, () => 4000)?.count).toBe(3000);
    // The first chunk without a holder is hashed too.
    expect(count()).toBe(1000 + 751);
    index.set("t", undefined, wanted.slice(), wanted);
    expect(count()).toBe(1000 + 1000);
    index.set("u", undefined, new Int32Array(4000), index.tokensOf("s"));
    expect(count()).toBe(1000 + 1000);
    // Another tenant has different keys.
    index.set("v", "a", new Int32Array(4000), index.tokensOf("s"));
    expect(count()).toBe(1000 + 1000 + 1000);
    expect(index.find("a", wanted, () => 4000)).toEqual({ holder: "v", count: 3000 });
  });
});

function counting(): { readonly hash: ChunkHash; readonly count: () => number } {
  let hashed = 0;
  const hash: ChunkHash = (previous, part) => {
    hashed++;
    return createHash("sha256")
      .update(`${previous} ${part.join(",")}`)
      .digest("base64url");
  };
  return { hash, count: () => hashed };
}
