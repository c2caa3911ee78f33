import { describe, expect, it } from "vitest";
import { Lru } from "../../src/text/lru.ts";

describe("the LRU", () => {
  it("drops the least recently used value once the weight is exceeded", () => {
    const lru = new Lru<number>(10);
    lru.set("a", 1, 4);
    lru.set("b", 2, 4);
    expect(lru.get("a")).toBe(1);
    lru.set("c", 3, 4);
    expect(lru.get("b")).toBeUndefined();
    expect(lru.get("a")).toBe(1);
    expect(lru.weight).toBe(8);
  });

  it("replaces a value without counting its weight twice, and keeps none that is too heavy", () => {
    const lru = new Lru<number>(10);
    lru.set("a", 1, 6);
    lru.set("a", 2, 6);
    expect(lru.weight).toBe(6);
    lru.set("a", 3, 11);
    expect(lru.get("a")).toBeUndefined();
    expect(lru.weight).toBe(0);
  });

  it("holds no more entries than it may", () => {
    const lru = new Lru<number>(100, 2);
    for (const key of ["a", "b", "c"]) lru.set(key, 0, 1);
    expect(lru.size).toBe(2);
    expect(lru.get("a")).toBeUndefined();
  });
});
